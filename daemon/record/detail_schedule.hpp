// SPDX-License-Identifier: Apache-2.0
//
// Which samples of a record have each phase of the ranks (record.proto, Sample.Detail): those of the first seconds in which a generation's
// ranks say what they do, and then of two seconds now and then, on all nodes at about the same time. So a record of 8 ranks grows by less
// than 2 MiB an hour, and one of 1,024 by about 56 (tests/unit/record/size_test.cpp). With another --dp-record-interval than 1 s it
// has as many phases: one regular sample a second has them, and while they are recorded there is one each second. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dp {

// What a sample does with the phases that have ended since the last one that did not keep them.
enum class EndedPhases {
    kept,  // for the next one
    dropped,
    recorded
};

class DetailSchedule {
 public:
    void begin_generation() { has_phases_ = false; }
    // Whether phases are recorded now. `now`: by a clock that never jumps. `has_phases`: a phase of a rank has ended.
    bool is_on(std::chrono::seconds now, bool has_phases, int64_t unix_s, uint32_t world_size);
    // At a sample. Not a regular one: it is taken because something ends, and what was until then is recorded.
    EndedPhases at_sample(std::chrono::seconds now, bool has_phases, int64_t unix_s, uint32_t world_size,
                          bool is_regular);

 private:
    std::optional<int64_t> second_;             // of the last regular sample
    bool has_phases_ = false;                   // of this generation
    std::vector<std::chrono::seconds> firsts_;  // when the first seconds of the last hour's generations began
};

}  // namespace dp
