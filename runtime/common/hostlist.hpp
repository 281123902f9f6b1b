// SPDX-License-Identifier: Apache-2.0
//
// Slurm's compressed host lists, such as "gpu[01-03,07],login1", read and written without scontrol
// (containers have none); also ranks for messages. Used by the plugin and the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// The most hosts that a list may expand to: more than any cluster has, and a guard against "n[0-999999999]"
// in an environment that somebody else wrote.
inline constexpr size_t kMaxHosts = 1 << 17;
inline constexpr size_t kMaxHostBytes = kMaxHosts * 128;  // of all its names

// A parsed list, not expanded: each node asks for one host of thousands. Refers to the text it was read from.
class Hostlist {
 public:
    static Try<Hostlist> read(std::string_view list);

    // The number of hosts, at most kMaxHosts.
    size_t size() const { return size_; }
    bool has(std::string_view host) const;
    // nullopt if index >= size().
    std::optional<std::string> at(size_t index) const;
    // All hosts, in order. Several brackets in one name expand like nested loops, the last one fastest.
    std::vector<std::string> all() const;

    // A range of a bracket, "01-03": numbers, their least digits, and how many numbers precede it there.
    struct Range {
        uint64_t first, last;
        size_t digits;
        size_t before;
        size_t end() const { return before + (last - first + 1); }
    };
    // The text before a bracket, and the bracket; none after the last text. A bracket may have as many ranges
    // as the list has hosts, so never walk through all of them for each number.
    struct Piece {
        std::string_view word;
        std::vector<Range> ranges;
        size_t numbers() const { return ranges.empty() ? 1 : ranges.back().end(); }
    };
    // The pieces between two commas.
    using Name = std::vector<Piece>;

 private:
    std::vector<Name> names_;
    size_t size_ = 0;
};

// A host that two of the lists share, and the lists' indices, the lower first; nullopt if there is none.
struct SharedHost {
    std::string host;
    size_t first, second;
};
std::optional<SharedHost> shared_host(std::span<const Hostlist> lists);

// Hostlist::all.
Try<std::vector<std::string>> expand_hostlist(std::string_view list);

// The hosts of a step's nodes, which Slurm sorts, in the order of their lowest ranks: that of NODE_RANK, as
// the others look for their master on rank 0's node. Differs only with --distribution=arbitrary.
std::vector<std::string> in_rank_order(std::vector<std::pair<uint32_t, std::string>> lowest_rank_and_host);

// A compressed form, folding neighbours with equal prefixes: node01 node02 node03 -> "node[01-03]".
std::string compress_hostlist(std::span<const std::string> hosts);

// Ascending numbers, runs folded: 0 1 2 5 -> "0-2,5".
std::string compress_ranks(std::span<const uint32_t> ranks);

// "rank 3" or "ranks 0-2,5".
std::string name_ranks(std::span<const uint32_t> ranks);

}  // namespace dp
