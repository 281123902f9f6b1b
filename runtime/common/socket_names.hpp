// SPDX-License-Identifier: Apache-2.0
//
// The abstract unix sockets of a step on a node. Everybody there sees the names, so they say which step it is
// and whose: who looks for his own step need not knock at others'. They prove nothing; the kernel tells who
// listens (SO_PEERCRED).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace dp {

// Names are without '@'.
struct RanksSocketName {
    std::string step;    // "123.0"
    uid_t user = 0;      // whose step it is
    std::string suffix;  // by chance, so that nobody can have bound it before
    bool operator==(const RanksSocketName&) const = default;

    std::string text() const;  // "slurm-dp/123.0/1001/5f"
};

// The name's parts; nullopt: it is another's. Anybody can listen on any name: step and suffix are letters,
// digits, '.' and '-', and can be printed.
std::optional<RanksSocketName> parse_ranks_socket_name(std::string_view name);

// Where the metrics of a step are served: "slurm-dp-metrics/123.0".
std::string metrics_socket_name(std::string_view step);

}  // namespace dp
