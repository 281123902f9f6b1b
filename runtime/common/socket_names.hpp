// SPDX-License-Identifier: Apache-2.0
//
// The abstract unix sockets of a step on a node. Everybody there sees the names: with step and user in them,
// dpctl need not connect to others' steps. They prove nothing; the kernel tells who listens (SO_PEERCRED).
#pragma once

#include <sys/types.h>

#include "base/text.hpp"

namespace dp {

// Names are without '@'.
struct RanksSocketName {
    std::string step;    // "123.0"
    uid_t user = 0;      // whose step it is
    std::string suffix;  // by chance, so that nobody can have bound it before
    bool operator==(const RanksSocketName&) const = default;

    std::string text() const {  // "slurm-dp/123.0/1001/5f"
        return "slurm-dp/" + step + "/" + std::to_string(user) + "/" + suffix;
    }
};

// The name's parts; nullopt if it is not ours. Anybody can listen on any name: step and suffix consist of
// letters, digits, '.' and '-', so they are printable.
inline std::optional<RanksSocketName> parse_ranks_socket_name(std::string_view name) {
    const auto is_plain = [](std::string_view text) {
        return !text.empty() &&
               text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") ==
                   std::string_view::npos;
    };
    const auto parts = split(name, '/');
    if (parts.size() != 4 || parts[0] != "slurm-dp" || !is_plain(parts[1]) || !is_plain(parts[3]))
        return std::nullopt;
    const auto user = parse_number<uid_t>(parts[2]);
    if (!user) return std::nullopt;
    return RanksSocketName{std::string(parts[1]), *user, std::string(parts[3])};
}

// Where the keepers of the step's ranks meet the same daemon.
inline std::string keepers_socket_name(std::string_view ranks_socket) {
    return std::string(ranks_socket) + "/k";
}

// The socket of a step's metrics: "slurm-dp-metrics/123.0".
inline constexpr std::string_view kMetricsSocket = "slurm-dp-metrics/";
inline std::string metrics_socket_name(std::string_view step) {
    return std::string(kMetricsSocket) + std::string(step);
}
// nullopt: it is no such name, or its step is none: "123.0" or "local.4711".
inline std::optional<std::string> step_of_metrics_socket(std::string_view name) {
    if (!name.starts_with(kMetricsSocket)) return std::nullopt;
    const std::string_view step = name.substr(kMetricsSocket.size());
    const auto parts = split(step, '.');
    const auto is_number = [](std::string_view part) { return parse_number<uint32_t>(part).has_value(); };
    if (parts.size() != 2 || !is_number(parts[1]) || !(is_number(parts[0]) || parts[0] == "local"))
        return std::nullopt;
    return std::string(step);
}

// The abstract names on which somebody listens, as /proc/net/unix has them.
inline std::vector<std::string_view> listening_names(std::string_view proc_net_unix) {
    std::vector<std::string_view> names;
    for (const std::string_view line : split(proc_net_unix, '\n')) {
        // Num RefCount Protocol Flags Type St Inode Path; 00010000 is a listening socket.
        const size_t at = line.find(" @");
        if (at != std::string_view::npos && line.find(" 00010000 ") < at)
            names.push_back(line.substr(at + 2));
    }
    return names;
}

}  // namespace dp
