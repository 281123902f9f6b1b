// SPDX-License-Identifier: Apache-2.0
#include "loop/stack_reader.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "engine/stack_questions.hpp"

namespace dp {

StackReader::StackReader(event_base* base, std::vector<std::string> command, OnRead on_read)
    : base_(base), command_(std::move(command)), on_read_(std::move(on_read)) {}

void StackReader::reap() {
    std::erase_if(ended_, [](pid_t program) { return waitpid(program, nullptr, WNOHANG) != 0; });
}

void StackReader::read(const wire::ReadStacks& asked, const std::vector<Process>& processes) {
    reap();
    Reading& reading = readings_.emplace_back();
    reading.question = asked.question();
    reading.processes = processes;
    auto command = command_;
    if (asked.wanted().threads()) command.emplace_back("--threads");
    const size_t without_pids = command.size();
    for (const Process& process : processes)
        if (process.pid > 0) command.push_back(std::to_string(process.pid));
    if (command.size() == without_pids) return finish(reading, "");
    if (!ended_.empty())
        return finish(reading, "an earlier reading hangs in the kernel: a file system that does not answer?");
    reading.program.emplace(
        [&reading](std::string& said) {
            reading.said = said;
            return said.size() <= kMaxNodeStacks;
        },
        [this, &reading](HelperRun::End end) {
            finish(reading,
                   end == HelperRun::End::too_late ? "reading them takes too long"
                   : end == HelperRun::End::wrong
                       ? "its stacks are too large for one answer; ask for some of its ranks with --rank"
                       : "");
        });
    if (const auto started = reading.program->start(base_, command, kReadingDeadline); !started)
        finish(reading, started.error().message);
}

void StackReader::finish(Reading& reading, const std::string& problem) {
    if (const pid_t program = reading.program ? reading.program->end() : 0; program != 0)
        ended_.push_back(program);
    std::list<Reading> done;
    const auto place = std::ranges::find_if(readings_, [&](const Reading& one) { return &one == &reading; });
    done.splice(done.begin(), readings_, place);
    tell(done.front(), problem);
}

// `problem`: why there may be less than was asked for.
void StackReader::tell(const Reading& reading, const std::string& problem) {
    wire::NodeStacks said, told;
    told.set_question(reading.question);
    const auto alive =
        std::ranges::count_if(reading.processes, [](const Process& one) { return one.pid > 0; });
    const std::string why = problem.empty() ? "the program that reads it has failed" : problem;
    if (!said.ParseFromString(reading.said) || said.ranks_size() > alive) said.Clear();
    if (alive > 0 && said.ranks().empty()) {
        told.set_problem(why);
        return on_read_(std::move(told));
    }
    int next = 0;
    for (const Process& process : reading.processes) {
        wire::RankStacks& rank = *told.add_ranks();
        if (process.pid <= 0)
            rank.set_unknown("it has no process");
        else if (next < said.ranks_size())
            rank.Swap(said.mutable_ranks(next++));
        else
            rank.set_unknown(why);
        rank.set_rank(process.rank);
    }
    on_read_(std::move(told));
}

}  // namespace dp
