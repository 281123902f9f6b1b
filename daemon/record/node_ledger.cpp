// SPDX-License-Identifier: Apache-2.0
#include "record/node_ledger.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace dp {

NodeLedger::NodeLedger(size_t tasks, std::chrono::nanoseconds patience, int64_t now_ns)
    : patience_(patience), looked_ns_(now_ns), tasks_(tasks) {}

void NodeLedger::look(std::span<const TaskSeen> tasks, int64_t now_ns) {
    const int64_t took = std::max<int64_t>(now_ns - std::exchange(looked_ns_, now_ns), 0);
    for (size_t i = 0; i < std::min(tasks.size(), tasks_.size()); ++i) look(tasks_[i], tasks[i], took);
}

void NodeLedger::look(Task& task, const TaskSeen& now, int64_t took_ns) {
    if (!first_generation_) first_generation_ = now.generation;
    const bool is_another = now.generation != task.last.generation || now.has_rank != task.last.has_rank;
    if (is_another) decide(task, Spent::unlabelled);
    if (is_another) task.may_be_start = true;
    if (!now.has_rank) {
        add(Spent::spare, took_ns);
    } else if (now.is_ending || now.has_exited) {
        decide(task, Spent::unlabelled);
        add(now.is_ending ? Spent::restart : Spent::ended, took_ns);
    } else if (now.is_still) {
        add(Spent::hang, took_ns);
    } else {
        run(task, now, took_ns);
    }
    // A page may be unreadable for a moment.
    const bool is_same = now.connection != 0 && now.connection == task.last.connection;
    const auto phases = now.phases || !is_same ? now.phases : task.last.phases;
    task.last = now;
    task.last.phases = phases;
}

void NodeLedger::run(Task& task, const TaskSeen& now, int64_t took_ns) {
    int64_t labelled = 0;
    if (now.phases) {
        PhaseTimes times = *now.phases;
        const bool goes_on = task.last.phases && task.last.connection == now.connection;
        for (size_t phase = 0; phase < kPhases; ++phase)
            times[phase] = std::max<int64_t>(times[phase] - (goes_on ? (*task.last.phases)[phase] : 0), 0);
        const int64_t sum = std::accumulate(times.begin(), times.end(), int64_t{0});
        labelled = std::min(sum, took_ns);
        for (size_t phase = 0; phase < kPhases && sum > 0; ++phase)
            add(kSpentInPhase[phase],
                static_cast<int64_t>(static_cast<double>(times[phase]) * static_cast<double>(labelled) /
                                     static_cast<double>(sum)));
    }
    task.undecided_ns += took_ns - labelled;
    if (now.phases)
        decide(task, !task.may_be_start                    ? Spent::unlabelled
                     : now.generation == first_generation_ ? Spent::start
                                                           : Spent::restart);
    if (now.phases || std::chrono::nanoseconds(task.undecided_ns) > patience_) task.may_be_start = false;
    if (!task.may_be_start) decide(task, Spent::unlabelled);
}

void NodeLedger::decide(Task& task, Spent what) {
    add(what, std::exchange(task.undecided_ns, 0));
}

}  // namespace dp
