// SPDX-License-Identifier: Apache-2.0
#include "dpctl/usage_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "dpctl/status.hpp"
#include "dpctl/table.hpp"
#include "tiles/shares.hpp"

namespace dp {
namespace {

// By dp_phase_kind: the JSON key, and the column's title.
constexpr std::array<const char*, kPhases> kNames = {"idle", "compute", "load", "communication",
                                                     "checkpoint"};
constexpr std::array<const char*, kPhases> kTitles = {"%idle", "%compute", "%load", "%comm", "%chkpt"};
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
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
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
    std::vector<std::vector<std::string>> lines = {{"HOST", "TILE"}};
    std::vector<bool> to_right = {false, false};
    for (const char* title : kTitles) {
        lines[0].emplace_back(title);
        to_right.push_back(true);
    }
    lines[0].emplace_back("%cpu");
    to_right.push_back(true);
    if (!table.gpus.empty()) {
        lines[0].insert(lines[0].end(), {"%gpu", "GPU_MEM"});
        to_right.insert(to_right.end(), {true, true});
    }
    for (const char* title : {"RANK", "PID", "USER", "COMMAND"}) lines[0].emplace_back(title);
    to_right.insert(to_right.end(), {true, true, false, false});
    for (const UsageRow& row : table.rows) {
        const auto& rank = row.rank;
        auto& line = lines.emplace_back();
        line.push_back(row.host);
        line.push_back(rank.tiles().empty() ? "-" : printable(rank.tiles()));
        for (size_t i = 0; i < kPhases; ++i) line.push_back(row.percent ? number((*row.percent)[i]) : "-");
        line.push_back(row.cpu_percent ? number(*row.cpu_percent) : "-");
        if (!table.gpus.empty())
            for (const auto& word : gpus_in_words(table, row)) line.push_back(word);
        line.push_back(std::to_string(rank.rank()));
        line.push_back(rank.pid() == 0 ? "-" : std::to_string(rank.pid()));
        line.push_back(table.user);
        line.push_back(command_in_words(rank));
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
        char time[32];
        std::snprintf(time, sizeof time, "%.3f", table.unix_time);
        // The cells before a tile, and after it.
        std::string before = time;
        before.append(",").append(csv_field(row.host)).append(",");
        std::string after;
        for (size_t i = 0; i < kPhases; ++i) after += "," + (row.percent ? number((*row.percent)[i]) : "");
        after += "," + std::to_string(row.rank.rank()) + "," +
                 (row.rank.pid() == 0 ? "" : std::to_string(row.rank.pid())) + "," + csv_field(table.user) +
                 "," + csv_field(printable(row.rank.command()));
        const std::string last = "," + (row.cpu_percent ? number(*row.cpu_percent) : "") + "\n";
        const auto line = [&](const std::string& tile, const Gpu* gpu) {
            out.append(before).append(tile).append(after).append(gpu_fields(gpu)).append(last);
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
    Json out;
    out["step"] = table.step;
    out["time"] = rounded(table.unix_time);
    out["seconds"] = rounded(table.seconds);
    out["world_size"] = table.usage.world_size();
    out["ending"] = table.usage.ending();
    out["ranks"] = Json::array();
    for (const UsageRow& row : table.rows) {
        Json one;
        one["host"] = row.host;
        one["rank"] = row.rank.rank();
        one["local_rank"] = row.rank.local_rank();
        one["tiles"] = parse_tiles(row.rank.tiles());
        one["state"] = name_of(row.rank.state());
        one["stopped"] = row.rank.stopped();
        one["pid"] = row.rank.pid();
        one["user"] = table.user;
        one["command"] = printable(row.rank.command());
        one["percent"] = nullptr;
        one["total_seconds"] = nullptr;
        for (size_t i = 0; row.percent && i < kPhases; ++i)
            one["percent"][kNames[i]] = rounded((*row.percent)[i]);
        for (int i = 0; i < row.rank.phase_ns_size() && i < static_cast<int>(kPhases); ++i)
            one["total_seconds"][kNames[static_cast<size_t>(i)]] =
                rounded(static_cast<double>(row.rank.phase_ns(i)) / 1e9);
        one["cpu_percent"] = nullptr;
        if (row.cpu_percent) one["cpu_percent"] = rounded(*row.cpu_percent);
        one["gpus"] = Json::array();
        for (const uint32_t tile : parse_tiles(row.rank.tiles())) {
            const Gpu* gpu = gpu_of(table, row, tile);
            if (!gpu) continue;
            Json use = {{"tile", tile},
                        {"busy_percent", nullptr},
                        {"memory_used", gpu->memory_used()},
                        {"memory_total", gpu->memory_total()}};
            if (gpu->has_busy_percent()) use["busy_percent"] = gpu->busy_percent();
            one["gpus"].push_back(std::move(use));
        }
        out["ranks"].push_back(std::move(one));
    }
    out["not_measured"] = Json::array();
    for (const auto& node : table.usage.nodes())
        if (!node.problem().empty())
            out["not_measured"].push_back({{"host", host_of(node)}, {"problem", printable(node.problem())}});
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
