// SPDX-License-Identifier: Apache-2.0
//
// Which samples of a record have each phase of the ranks (record.proto, Sample.Detail): those of the first seconds in which a generation's
// ranks say what they do, and then of two seconds now and then, on all nodes at about the same time. So a record of 8 ranks grows by less
// than 2 MiB an hour, and one of 1,024 by less than 80 (tests/bench/run record). Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dp {

class DetailSchedule {
 public:
    void begin_generation() { has_phases_ = false; }
    // Whether a sample that is taken now is one. `now`: by a clock that never jumps. `has_phases`: a phase of a rank has ended.
    bool is_on(std::chrono::seconds now, bool has_phases, int64_t unix_s, uint32_t world_size);

 private:
    bool has_phases_ = false;                   // of this generation
    std::vector<std::chrono::seconds> firsts_;  // when the first seconds of the last hour's generations began
};

}  // namespace dp
