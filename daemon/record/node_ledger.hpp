// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a node's tasks goes while the step runs, for its metrics: the words of the ledger, but that communication includes
// the waiting for others, and work that a restart throws away is not told apart; both show only in the records of all nodes
// (record/timeline.hpp). Pure; whoever looks at the tasks about once a second owns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/phase_page.hpp"
#include "record/spent.hpp"

namespace dp {

// What a look at a task shows.
struct TaskSeen {
    bool has_rank = false;
    bool is_ending = false;  // for another generation
    bool has_exited = false;
    bool is_still = false;  // it has made no progress for the hang timeout
    uint32_t generation = 0;
    uint64_t connection = 0;                // of the program's world
    std::optional<PhaseTimes> phases = {};  // of that world so far; nullopt: it has begun none
};

class NodeLedger {
 public:
    // Until a program's first phase its time may be the start's. Without a phase for `patience`, it is unlabelled.
    NodeLedger(size_t tasks, std::chrono::nanoseconds patience, int64_t now_ns);

    // By task. What each is seen at is what it did since the last look.
    void look(std::span<const TaskSeen> tasks, int64_t now_ns);

    // Since the last look.
    bool is_older_than(std::chrono::nanoseconds pause, int64_t now_ns) const {
        return now_ns - looked_ns_ >= pause.count();
    }

    // Of all tasks; none of the times ever gets less. What belongs to which word is sometimes known later.
    const SpentTimes& spent() const { return spent_; }

 private:
    struct Task {
        TaskSeen last;
        int64_t undecided_ns = 0;  // of its program, which has not begun a phase
        bool may_be_start = true;
    };
    std::chrono::nanoseconds patience_;
    int64_t looked_ns_;
    std::vector<Task> tasks_;
    std::optional<uint32_t> first_generation_;
    SpentTimes spent_{};

    void look(Task& task, const TaskSeen& now, int64_t took_ns);
    void run(Task& task, const TaskSeen& now, int64_t took_ns);
    void decide(Task& task, Spent what);
    void add(Spent what, int64_t ns) { of(spent_, what) += static_cast<double>(ns) / 1e9; }
};

}  // namespace dp
