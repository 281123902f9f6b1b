// SPDX-License-Identifier: Apache-2.0
#include "dpctl/usage_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "dpctl/commands.hpp"
#include "engine/table.hpp"
#include "tiles/shares.hpp"

namespace dp {
namespace {

// The JSON keys, by dp_phase_kind.
constexpr std::array<const char*, kPhases> kNames = {"idle", "compute", "load", "communication",
                                                     "checkpoint"};
constexpr size_t kIdle = 0;
// What is printed as 100.0.
constexpr double kAllOfIt = 99.95;

using Percent = std::array<double, kPhases>;

std::optional<Percent> percent_between(const wire::NodeUsage::Rank& before,
                                       const wire::NodeUsage::Rank& after) {
    constexpr int kAll = static_cast<int>(kPhases);
    if (before.phase_ns_size() != kAll || after.phase_ns_size() != kAll || before.pid() != after.pid())
        return std::nullopt;
    Percent out{};
    double sum = 0;
    for (int i = 0; i < kAll; ++i) {
        const double spent = static_cast<double>(after.phase_ns(i)) - static_cast<double>(before.phase_ns(i));
        if (spent < 0) return std::nullopt;  // another program of the same task
        out[static_cast<size_t>(i)] = spent;
        sum += spent;
    }
    if (sum <= 0) return std::nullopt;
    for (double& one : out) one *= 100 / sum;
    return out;
}

std::optional<double> cpu_percent_between(const wire::NodeUsage::Rank& before,
                                          const wire::NodeUsage::Rank& after, double ns) {
    if (!before.has_cpu_ns() || !after.has_cpu_ns() || before.pid() != after.pid() || ns <= 0)
        return std::nullopt;
    const double worked = static_cast<double>(after.cpu_ns()) - static_cast<double>(before.cpu_ns());
    if (worked < 0) return std::nullopt;
    return 100 * worked / ns;
}

std::string host_of(const wire::NodeUsage& node) {
    return node.host().empty() ? "node " + std::to_string(node.node_rank()) : printable(node.host());
}

std::string number(double value) {
    return fmt::format("{:.1f}", value);
}

std::string command_in_words(const wire::NodeUsage::Rank& rank) {
    if (rank.pid() == 0) return std::string("(") + name_of(rank.state()) + ")";
    return printable(rank.command()) + (rank.stopped() ? " (stopped)" : "");
}

// RFC 4180: quoted if necessary.
std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}

using Gpu = wire::NodeUsage::Gpu;

const Gpu* gpu_of(const UsageTable& table, const UsageRow& row, uint32_t tile) {
    const auto node = table.gpus.find(row.host);
    if (node == table.gpus.end()) return nullptr;
    const auto found = node->second.find(tile);
    return found == node->second.end() ? nullptr : &found->second;
}

// The cells of a CSV line.
std::string gpu_fields(const Gpu* gpu) {
    if (!gpu) return ",,,";
    return "," + (gpu->has_busy_percent() ? std::to_string(gpu->busy_percent()) : "") + "," +
           std::to_string(gpu->memory_used()) + "," + std::to_string(gpu->memory_total());
}

// For all tiles of a rank: their mean utilisation and their memory together, as far as known.
std::array<std::string, 2> gpus_in_words(const UsageTable& table, const UsageRow& row) {
    constexpr double kGiB = 1 << 30;
    uint32_t known = 0;
    double busy = 0;
    double used = 0;
    double total = 0;
    for (const uint32_t tile : parse_tiles(row.rank.tiles())) {
        const Gpu* gpu = gpu_of(table, row, tile);
        if (!gpu) continue;
        used += static_cast<double>(gpu->memory_used()) / kGiB;
        total += static_cast<double>(gpu->memory_total()) / kGiB;
        if (!gpu->has_busy_percent()) continue;
        busy += gpu->busy_percent();
        ++known;
    }
    return {known > 0 ? number(busy / known) : "-",
            total > 0 ? number(used) + "/" + number(total) + "G" : "-"};
}

}  // namespace

UsageTable usage_between(const wire::StepUsage& before, const wire::StepUsage& after, bool skip_idle) {
    std::map<uint32_t, const wire::NodeUsage::Rank*> earlier;
    std::map<uint32_t, int64_t> looked_at;
    for (const auto& node : before.nodes()) {
        if (!node.problem().empty()) continue;
        looked_at[node.node_rank()] = node.now_ns();
        for (const auto& rank : node.ranks()) earlier[rank.rank()] = &rank;
    }
    UsageTable table;
    table.usage = after;
    for (const auto& node : after.nodes()) {
        if (!node.problem().empty()) continue;
        double ns = 0;
        if (auto at = looked_at.find(node.node_rank()); at != looked_at.end())
            ns = static_cast<double>(node.now_ns()) - static_cast<double>(at->second);
        table.seconds = std::max(table.seconds, ns / 1e9);
        for (const auto& gpu : node.gpus()) table.gpus[host_of(node)].emplace(gpu.tile(), gpu);
        for (const auto& rank : node.ranks()) {
            UsageRow row{host_of(node), rank, std::nullopt, std::nullopt};
            if (auto was = earlier.find(rank.rank()); was != earlier.end()) {
                row.percent = percent_between(*was->second, rank);
                row.cpu_percent = cpu_percent_between(*was->second, rank, ns);
            }
            if (skip_idle && row.percent && (*row.percent)[kIdle] >= kAllOfIt) continue;
            table.rows.push_back(std::move(row));
        }
    }
    return table;
}

std::string usage_text(const UsageTable& table) {
    std::string out = "step " + table.step + ": " + plural(table.usage.world_size(), "rank") + " on " +
                      plural(static_cast<size_t>(table.usage.nodes_size()), "node") + ", over " +
                      number(table.seconds) + " s\n";
    if (!table.usage.ending().empty())
        out += "it is being ended: " + printable(table.usage.ending(), 600) + "\n";
    const bool with_gpus = !table.gpus.empty();
    std::vector<std::string> titles = {"HOST",  "TILE",  "%idle",  "%compute",
                                       "%load", "%comm", "%chkpt", "%cpu"};
    const bool with_steps =
        std::ranges::any_of(table.rows, [](const UsageRow& row) { return row.rank.has_own_step_ns(); });
    if (with_steps) titles.emplace_back("OWN_MS");
    if (with_gpus) titles.insert(titles.end(), {"%gpu", "GPU_MEM"});
    titles.insert(titles.end(), {"RANK", "PID", "USER", "COMMAND"});
    std::vector<bool> to_right(titles.size(), true);
    for (const size_t text : {size_t{0}, size_t{1}, titles.size() - 2, titles.size() - 1})
        to_right[text] = false;
    std::vector<std::vector<std::string>> lines = {std::move(titles)};
    for (const UsageRow& row : table.rows) {
        const auto& rank = row.rank;
        auto& line = lines.emplace_back();
        line = {row.host, rank.tiles().empty() ? "-" : printable(rank.tiles())};
        for (size_t i = 0; i < kPhases; ++i) line.push_back(row.percent ? number((*row.percent)[i]) : "-");
        line.push_back(row.cpu_percent ? number(*row.cpu_percent) : "-");
        if (with_steps)
            line.push_back(rank.has_own_step_ns() ? number(static_cast<double>(rank.own_step_ns()) / 1e6)
                                                  : "-");
        if (with_gpus)
            for (auto& word : gpus_in_words(table, row)) line.push_back(std::move(word));
        line.insert(line.end(),
                    {std::to_string(rank.rank()), rank.pid() == 0 ? "-" : std::to_string(rank.pid()),
                     table.user, command_in_words(rank)});
    }
    return out + aligned(lines, 0, to_right) + problems_of(table.usage);
}

std::string problems_of(const wire::StepUsage& usage) {
    struct Nodes {
        std::vector<std::string> hosts;
        std::vector<uint32_t> ranks;
    };
    std::map<std::string, Nodes> by_problem;
    for (const auto& node : usage.nodes()) {
        if (node.problem().empty()) continue;
        Nodes& nodes = by_problem[printable(node.problem())];
        nodes.hosts.push_back(host_of(node));
        for (const auto& rank : node.ranks()) nodes.ranks.push_back(rank.rank());
    }
    std::string out;
    for (auto& [problem, nodes] : by_problem) {
        std::sort(nodes.ranks.begin(), nodes.ranks.end());
        out += compress_hostlist(nodes.hosts) +
               (nodes.ranks.empty() ? "" : " (" + name_ranks(nodes.ranks) + ")") + ": " + problem + "\n";
    }
    return out;
}

std::string usage_csv_titles() {
    std::string out = "time,host,tile";
    for (const char* name : kNames) out += std::string(",") + name;
    return out + ",rank,pid,user,command,gpu_percent,gpu_memory_used,gpu_memory_total,cpu_percent\n";
}

std::string usage_csv(const UsageTable& table) {
    std::string out;
    for (const UsageRow& row : table.rows) {
        std::string phases;
        for (size_t i = 0; i < kPhases; ++i) phases += "," + (row.percent ? number((*row.percent)[i]) : "");
        const std::string pid = row.rank.pid() == 0 ? "" : std::to_string(row.rank.pid());
        const auto line = [&](const std::string& tile, const Gpu* gpu) {
            out += fmt::format("{:.3f},{},{}{},{},{},{},{}{},{}\n", table.unix_time, csv_field(row.host),
                               tile, phases, row.rank.rank(), pid, csv_field(table.user),
                               csv_field(printable(row.rank.command())), gpu_fields(gpu),
                               row.cpu_percent ? number(*row.cpu_percent) : "");
        };
        const auto tiles = parse_tiles(row.rank.tiles());
        for (const uint32_t tile : tiles) line(std::to_string(tile), gpu_of(table, row, tile));
        if (tiles.empty()) line(csv_field(printable(row.rank.tiles())), nullptr);
    }
    return out;
}

std::string usage_json(const UsageTable& table) {
    using Json = nlohmann::ordered_json;
    const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
    Json ranks = Json::array();
    for (const UsageRow& row : table.rows) {
        const auto& rank = row.rank;
        Json percent;
        Json total;
        for (size_t i = 0; row.percent && i < kPhases; ++i) percent[kNames[i]] = rounded((*row.percent)[i]);
        for (int i = 0; i < rank.phase_ns_size() && i < static_cast<int>(kPhases); ++i)
            total[kNames[static_cast<size_t>(i)]] = rounded(static_cast<double>(rank.phase_ns(i)) / 1e9);
        Json gpus = Json::array();
        const auto tiles = parse_tiles(rank.tiles());
        for (const uint32_t tile : tiles)
            if (const Gpu* gpu = gpu_of(table, row, tile))
                gpus.push_back(
                    {{"tile", tile},
                     {"busy_percent", gpu->has_busy_percent() ? Json(gpu->busy_percent()) : Json()},
                     {"memory_used", gpu->memory_used()},
                     {"memory_total", gpu->memory_total()}});
        ranks.push_back(
            {{"host", row.host},
             {"rank", rank.rank()},
             {"local_rank", rank.local_rank()},
             {"tiles", tiles},
             {"state", name_of(rank.state())},
             {"stopped", rank.stopped()},
             {"pid", rank.pid()},
             {"user", table.user},
             {"command", printable(rank.command())},
             {"percent", std::move(percent)},
             {"total_seconds", std::move(total)},
             {"cpu_percent", row.cpu_percent ? Json(rounded(*row.cpu_percent)) : Json()},
             {"own_step_seconds",
              rank.has_own_step_ns() ? Json(static_cast<double>(rank.own_step_ns()) / 1e9) : Json()},
             {"gpus", std::move(gpus)}});
    }
    Json problems = Json::array();
    for (const auto& node : table.usage.nodes())
        if (!node.problem().empty())
            problems.push_back({{"host", host_of(node)}, {"problem", printable(node.problem())}});
    const Json out = {{"step", table.step},
                      {"time", rounded(table.unix_time)},
                      {"seconds", rounded(table.seconds)},
                      {"world_size", table.usage.world_size()},
                      {"ending", table.usage.ending()},
                      {"ranks", std::move(ranks)},
                      {"not_measured", std::move(problems)}};
    return out.dump() + "\n";
}

std::string fit_screen(std::string_view text, size_t lines, size_t columns) {
    auto all = split(text, '\n');
    if (!all.empty() && all.back().empty()) all.pop_back();
    // The cursor is on a separate line below the table.
    const size_t room = lines > 2 ? lines - 1 : 1;
    const bool cut = all.size() > room;
    const size_t shown = cut ? room - 1 : all.size();
    std::string out;
    for (size_t i = 0; i < shown; ++i) out += std::string(all[i].substr(0, columns)) + "\n";
    if (cut) out += ("... " + plural(all.size() - shown, "more line")).substr(0, columns) + "\n";
    return out;
}

}  // namespace dp
