// SPDX-License-Identifier: Apache-2.0
#include "common/daemon_config.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "common/fields.hpp"

namespace dp {
namespace {

// The one list of what goes to the daemon, to write it and to read it.
template <typename Config, typename Visit>
void visit(Config& c, Visit field) {
    field("job_id", c.job_id);
    field("step_id", c.step_id);
    field("broker", c.broker);
    field("generation", c.generation);
    field("world_size", c.world_size);
    field("nodes", c.nodes);
    field("node_rank", c.node_rank);
    field("host", c.host);
    field("tasks", c.tasks);
    field("ranks", c.ranks);
    field("tiles", c.tiles);
    field("tiles_conf", c.tiles_conf);
    field("node_list", c.node_list);
    field("settings", c.settings);
    field("gpus", c.gpus);
    field("cuda_devices", c.cuda_devices);
    field("temporary", c.temporary);
    field("exporter", c.exporter);
    field("dead_after_seconds", c.dead_after_seconds);
    field("secret", c.secret);
    field("broker_host", c.broker_host);
    field("broker_addresses", c.broker_addresses);
    field("candidates", c.candidates);
    field("node_addr", c.node_addr);
    field("master_addr", c.master_addr);
    field("master_port", c.master_port);
    field("coordinator_port", c.coordinator_port);
}

std::string to_text(const std::string& value) {
    return value;
}

std::string to_text(const Settings& settings) {
    return write_settings(settings);
}

template <typename Number>
std::string to_text(Number number) {
    return std::to_string(number);
}

template <typename Item>
std::string to_text(const std::vector<Item>& items) {
    std::string out;
    for (size_t i = 0; i < items.size(); ++i)
        out.append(i == 0 ? "" : ";").append(to_text(items[i]));  // tiles of one rank have commas
    return out;
}

// False: it is not what to_text writes.
bool from_text(std::string_view text, std::string& out) {
    out = text;
    return true;
}

bool from_text(std::string_view text, bool& out) {
    out = text == "1";
    return out || text == "0";
}

bool from_text(std::string_view text, Settings& out) {
    const auto settings = read_settings(text);
    if (settings) out = with_defaults(*settings);
    return settings.has_value();
}

template <typename Number>
bool from_text(std::string_view text, Number& out) {
    const auto number = parse_number<Number>(text);
    out = number.value_or(0);
    return number.has_value();
}

template <typename Item>
bool from_text(std::string_view text, std::vector<Item>& out) {
    bool good = true;
    if (text.empty()) return true;
    for (std::string_view part : split(text, ';')) good &= from_text(part, out.emplace_back());
    return good;
}

std::optional<std::string> devices_in(const char* name, const GetVariable& get) {
    const auto value = get(name);
    return value == "NoDevFiles" || value == "-1" ? "" : value;
}

}  // namespace

std::set<uint32_t> known_tiles(const DaemonConfig& config) {
    std::set<uint32_t> all;
    for (const std::string& list : config.tiles)
        if (const auto tiles = parse_ranges<uint32_t>(list, kMaxTilesPerRank))
            all.insert(tiles->begin(), tiles->end());
    return all;
}

bool has_gpus(const GetVariable& get) {
    return std::ranges::any_of(
        std::array{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"},
        [&](const char* name) { return !devices_in(name, get).value_or("").empty(); });
}

std::optional<std::string> cuda_devices(const GetVariable& get) {
    return devices_in("CUDA_VISIBLE_DEVICES", get);
}

std::string write_config(const DaemonConfig& config) {
    std::string text = field_line("version", std::to_string(kDaemonConfigVersion));
    visit(config, [&](const char* name, const auto& value) { text += field_line(name, to_text(value)); });
    return text;
}

Try<DaemonConfig> read_config(std::string_view text) {
    if (const auto version = field_of(text, "version"); version != std::to_string(kDaemonConfigVersion))
        return fail("plugin and dp-rendezvousd are of different versions (they speak " +
                    printable(version, 20) + " and " + std::to_string(kDaemonConfigVersion) +
                    "); install both from the same package");
    DaemonConfig c;
    std::string_view bad;
    visit(c, [&](std::string_view name, auto& value) {
        if (!from_text(field_of(text, name), value) && bad.empty()) bad = name;
    });
    if (!bad.empty())
        return fail("the daemon's configuration is malformed: " + std::string(bad) + "=" +
                    printable(field_of(text, bad), 40));
    if (c.secret.size() != 64 || c.world_size == 0 || c.nodes == 0 || c.tasks < c.ranks.size() ||
        (c.ranks.empty() && c.settings.spares == 0))
        return fail("the daemon's configuration is incomplete");
    if (!c.tiles.empty() && c.tiles.size() != c.tasks)
        return fail("the daemon's configuration is malformed: tiles of " + std::to_string(c.tiles.size()) +
                    " tasks, and the node has " + std::to_string(c.tasks));
    return c;
}

}  // namespace dp
