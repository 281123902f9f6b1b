// SPDX-License-Identifier: Apache-2.0
//
// The abstract unix sockets of a step on a node. Everybody there sees the names, so they include the
// step and its user: dpctl need not connect to others' steps. Names prove nothing; the kernel tells
// who listens (SO_PEERCRED).
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

// The name's parts; nullopt if it is not ours. Anybody can listen on any name: step and suffix consist of
// letters, digits, '.' and '-', so they are printable.
std::optional<RanksSocketName> parse_ranks_socket_name(std::string_view name);

// The socket of a step's metrics: "slurm-dp-metrics/123.0".
std::string metrics_socket_name(std::string_view step);

}  // namespace dp
