// SPDX-License-Identifier: Apache-2.0
#include "common/daemon_config.hpp"

#include "base/text.hpp"
#include "common/fields.hpp"

namespace dp {
namespace {

template <typename Number>
std::string write_numbers(const std::vector<Number>& numbers) {
    std::string out;
    for (Number n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
    return out;
}

// Reads typed values and remembers the first error.
class Reader {
 public:
    explicit Reader(const Fields& fields) : fields_(fields) {}

    std::string text(std::string_view name) const { return field(fields_, name); }

    template <typename Number>
    Number number(std::string_view name) {
        auto value = parse_number<Number>(text(name));
        if (!value && complaint_.empty()) complaint_ = std::string(name) + " is no number";
        return value.value_or(0);
    }

    template <typename Number>
    std::vector<Number> numbers(std::string_view name) {
        std::vector<Number> out;
        const std::string list = text(name);
        for (std::string_view part : split(list, ',')) {
            auto value = parse_number<Number>(part);
            if (!value && complaint_.empty())
                complaint_ = std::string(name) + " holds something that is no number";
            out.push_back(value.value_or(0));
        }
        return out;
    }

    const std::string& complaint() const { return complaint_; }

 private:
    const Fields& fields_;
    std::string complaint_;
};

}  // namespace

std::string write_config(const DaemonConfig& c) {
    std::string addresses;
    for (const auto& a : c.broker_addresses) addresses += (addresses.empty() ? "" : ",") + a;
    // A list of tiles contains commas.
    std::string tiles;
    for (size_t i = 0; i < c.tiles.size(); ++i) tiles += (i == 0 ? "" : ";") + c.tiles[i];
    return write_fields({{"version", std::to_string(kDaemonConfigVersion)},
                         {"job_id", std::to_string(c.job_id)},
                         {"step_id", std::to_string(c.step_id)},
                         {"broker", c.broker ? "1" : "0"},
                         {"generation", std::to_string(c.generation)},
                         {"world_size", std::to_string(c.world_size)},
                         {"nodes", std::to_string(c.nodes)},
                         {"node_rank", std::to_string(c.node_rank)},
                         {"host", c.host},
                         {"ranks", write_numbers(c.ranks)},
                         {"tiles", tiles},
                         {"tiles_conf", c.tiles_conf},
                         {"node_list", c.node_list},
                         {"timeout_seconds", std::to_string(c.timeout_seconds)},
                         {"dead_after_seconds", std::to_string(c.dead_after_seconds)},
                         {"want_table", c.want_table ? "1" : "0"},
                         {"report_failures", c.report_failures ? "1" : "0"},
                         {"torch_store", c.torch_store ? "1" : "0"},
                         {"secret", c.secret},
                         {"broker_host", c.broker_host},
                         {"broker_addresses", addresses},
                         {"candidates", write_numbers(c.candidates)},
                         {"node_addr", c.node_addr},
                         {"master_addr", c.master_addr},
                         {"master_port", std::to_string(c.master_port)},
                         {"coordinator_port", std::to_string(c.coordinator_port)}});
}

Try<DaemonConfig> read_config(std::string_view text) {
    auto fields = read_fields(text);
    if (!fields) return fail("the daemon's configuration is malformed: " + fields.error().message);
    Reader reader(*fields);
    if (uint32_t version = reader.number<uint32_t>("version"); version != kDaemonConfigVersion)
        return fail("plugin and dp-rendezvousd are of different versions (they speak " +
                    reader.text("version") + " and " + std::to_string(kDaemonConfigVersion) +
                    "); install both from the same package");
    DaemonConfig c;
    c.job_id = reader.number<uint32_t>("job_id");
    c.step_id = reader.number<uint32_t>("step_id");
    c.broker = reader.text("broker") == "1";
    c.generation = reader.number<uint32_t>("generation");
    c.world_size = reader.number<uint32_t>("world_size");
    c.nodes = reader.number<uint32_t>("nodes");
    c.node_rank = reader.number<uint32_t>("node_rank");
    c.host = reader.text("host");
    c.ranks = reader.numbers<uint32_t>("ranks");
    const std::string tiles = reader.text("tiles");
    for (std::string_view one : split(tiles, ';')) c.tiles.emplace_back(one);
    c.tiles_conf = reader.text("tiles_conf");
    c.node_list = reader.text("node_list");
    c.timeout_seconds = reader.number<uint32_t>("timeout_seconds");
    c.dead_after_seconds = reader.number<uint32_t>("dead_after_seconds");
    c.want_table = reader.text("want_table") == "1";
    c.report_failures = reader.text("report_failures") == "1";
    c.torch_store = reader.text("torch_store") == "1";
    c.secret = reader.text("secret");
    c.broker_host = reader.text("broker_host");
    const std::string addresses = reader.text("broker_addresses");
    for (std::string_view a : split(addresses, ',')) c.broker_addresses.emplace_back(a);
    c.candidates = reader.numbers<uint16_t>("candidates");
    c.node_addr = reader.text("node_addr");
    c.master_addr = reader.text("master_addr");
    c.master_port = reader.number<uint16_t>("master_port");
    c.coordinator_port = reader.number<uint16_t>("coordinator_port");
    if (!reader.complaint().empty())
        return fail("the daemon's configuration is malformed: " + reader.complaint());
    if (c.secret.size() != 64 || c.world_size == 0 || c.nodes == 0 || c.ranks.empty())
        return fail("the daemon's configuration is incomplete");
    if (!c.tiles.empty() && c.tiles.size() != c.ranks.size())
        return fail("the daemon's configuration is malformed: tiles of " + std::to_string(c.tiles.size()) +
                    " ranks, and the node has " + std::to_string(c.ranks.size()));
    return c;
}

}  // namespace dp
