// SPDX-License-Identifier: Apache-2.0
//
// --dp-record: what this node's ranks have done since the last time, and what the node has.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "common/phase_page.hpp"
#include "engine/local_ranks.hpp"
#include "record.pb.h"
#include "record/detail_schedule.hpp"
#include "record/new_scalars.hpp"

namespace dp {

// Bytes that all interfaces but lo have sent and received. From /proc/net/dev; pure.
struct Traffic {
    uint64_t sent = 0, received = 0;
};
Traffic read_traffic(std::string_view proc_net_dev);

class SampleReader {
 public:
    struct Rank {
        uint32_t rank = 0;
        pid_t pid = 0;                           // 0: it does not run
        std::optional<ConnectionId> connection;  // of its world
        std::optional<PhasePage> page;
        std::optional<uint64_t> step;  // how many training steps it says that it has taken
    };
    // Recorded phases are those before `entry_ns`, the time of the sample's entry. `is_last`: a rank ends.
    record::Sample read(const std::vector<Rank>& ranks, int64_t now_ns,
                        EndedPhases ended = EndedPhases::dropped, int64_t entry_ns = 0, bool is_last = false);
    // Whether a rank that ends has logged what is in no sample.
    bool has_new_scalars(const std::vector<Rank>& ranks) const;
    // Other ranks are here now, perhaps in processes that were here before.
    void begin_generation(uint32_t world_size) {
        steps_.clear();
        scalars_.begin_generation(world_size);
    }

 private:
    struct Counted {
        PhaseTimes phases{};        // nanoseconds
        uint64_t own_steps = 0;     // by its page
        uint64_t ended_phases = 0;  // likewise, but for those that are kept
    };
    std::map<ConnectionId, Counted> worlds_;  // that are open
    std::map<pid_t, int64_t> cpu_ns_;
    std::map<uint32_t, int64_t> steps_;  // the training's count, by rank
    NewScalars scalars_;
    std::optional<Traffic> traffic_;
};

}  // namespace dp
