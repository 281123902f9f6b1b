// SPDX-License-Identifier: Apache-2.0
//
// --dp-slow: how fast this node's ranks are, and what in /proc may set one apart.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/phase_page.hpp"
#include "dp.pb.h"
#include "engine/local_ranks.hpp"
#include "loop/core_state.hpp"

namespace dp {

// What counts up since the process began, or its cgroup, core or node.
struct PaceCounters {
    std::optional<int64_t> core_waited_ns;     // its main thread
    std::optional<int64_t> throttled_periods;  // its cgroup's quota
    std::optional<int64_t> periods;
    std::optional<int64_t> major_faults;
    std::optional<int64_t> retransmissions;
    CoreState core;  // on which it ran last
    bool operator==(const PaceCounters&) const = default;
};

// From /proc/PID/schedstat and /proc/PID/stat, /proc/net/snmp, and a cgroup's cpu.stat of either version. Pure.
PaceCounters read_counters(std::string_view schedstat, std::string_view stat, std::string_view snmp,
                           std::string_view cpu_stat);

class PaceReader {
 public:
    // Nothing before the rank has taken enough steps, or if it has taken none since the last time. Rates come from the second time on.
    std::optional<wire::RankPace> read(uint32_t rank, ConnectionId connection, pid_t pid,
                                       const PhasePage& page, int64_t now_ns);
    // Whether a rank is slower than it has been, at the last read of it.
    bool has_slowed_down() const;
    // Adds what holds back the GPU on which this process computes, if it is one of these: of several the worst.
    void note_gpu(wire::RankPace& pace, pid_t process, const wire::NodeUsage& gpus);

 private:
    struct Last {
        ConnectionId connection =
            0;  // of its world: another program, or a world that was opened again, has another one
        uint64_t steps = 0;
        int64_t now_ns = 0;
        int64_t own_ns = 0, best_own_ns = INT64_MAX;  // of a step
        PhaseTimes times{};
        PaceCounters counters;
    };
    std::map<uint32_t, Last> last_;                       // by rank
    std::map<uint32_t, uint64_t> lost_bits_, xid_lines_;  // by tile, when it was first seen
};

}  // namespace dp
