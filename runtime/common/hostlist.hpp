// SPDX-License-Identifier: Apache-2.0
//
// Slurm's compressed host lists, such as "gpu[01-03,07],login1", written and read without scontrol (a
// container has none), and ranks for messages. Used by the plugin and the daemon.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"

namespace dp {

// Most hosts one list may expand to: a guard against "n[0-999999999]" in an environment that somebody else
// wrote. More than any cluster has, and soon made.
inline constexpr size_t kMaxHosts = 1 << 17;

// The hosts of a list in order. Several brackets in one name expand like nested loops, the last one fastest.
Try<std::vector<std::string>> expand_hostlist(std::string_view list);

// A short form of the names, neighbours with equal prefixes folded: node01 node02 node03 -> "node[01-03]".
std::string compress_hostlist(std::span<const std::string> hosts);

// Ascending numbers, runs folded: 0 1 2 5 -> "0-2,5".
std::string compress_ranks(std::span<const uint32_t> ranks);

// "rank 3" or "ranks 0-2,5".
std::string name_ranks(std::span<const uint32_t> ranks);

}  // namespace dp
