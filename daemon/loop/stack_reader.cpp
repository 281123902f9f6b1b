// SPDX-License-Identifier: Apache-2.0
#include "loop/stack_reader.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "engine/stack_questions.hpp"
#include "loop/helper_program.hpp"

namespace dp {

StackReader::StackReader(event_base* base, std::vector<std::string> command, OnRead on_read)
    : base_(base), command_(std::move(command)), on_read_(std::move(on_read)) {}

// Not waited for: a program that hangs in the kernel would delay the daemon, and with it the end of the step.
StackReader::~StackReader() {
    for (const Reading& reading : readings_)
        if (reading.program > 0) kill(reading.program, SIGKILL);
}

void StackReader::reap() {
    std::erase_if(ended_, [](pid_t program) { return waitpid(program, nullptr, WNOHANG) != 0; });
}

void StackReader::read(const wire::ReadStacks& asked, const std::vector<Process>& processes) {
    reap();
    Reading& reading = readings_.emplace_back();
    reading.reader = this;
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
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return finish(reading, "no pipe for the program that reads them");
    reading.output.reset(ends[0]);
    const Fd input(ends[1]);
    fcntl(reading.output.get(), F_SETFL, O_NONBLOCK);
    reading.program = spawn_helper(command, input.get());
    if (reading.program == 0)
        return finish(
            reading,
            command.front() + " cannot be started; in a container, slurm-dp must be installed there, too");
    reading.event.reset(event_new(base_, reading.output.get(), EV_READ, on_output, &reading));
    reading.deadline = Clock::now() + kReadingDeadline;
    wait_for_output(reading);
}

void StackReader::wait_for_output(Reading& reading) {
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(reading.deadline - Clock::now()).count();
    const timeval patience{0, 1};
    const timeval rest{left / 1'000'000, left % 1'000'000};
    event_add(reading.event.get(), left > 0 ? &rest : &patience);
}

void StackReader::on_output(int, short what, void* of) {
    Reading& reading = *static_cast<Reading*>(of);
    StackReader& self = *reading.reader;
    if (what & EV_TIMEOUT) return self.finish(reading, "reading them takes too long");
    std::array<char, 65536> some{};
    ssize_t size = 0;
    while ((size = ::read(reading.output.get(), some.data(), some.size())) > 0) {
        reading.said.append(some.data(), static_cast<size_t>(size));
        if (reading.said.size() > kMaxNodeStacks)
            return self.finish(
                reading, "its stacks are too large for one answer; ask for some of its ranks with --rank");
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return self.wait_for_output(reading);
    // It has closed its output: it ends now.
    kill(reading.program, SIGKILL);
    waitpid(std::exchange(reading.program, 0), nullptr, 0);
    self.finish(reading, "");
}

void StackReader::finish(Reading& reading, const std::string& problem) {
    if (reading.program != 0) {
        kill(reading.program, SIGKILL);
        if (waitpid(reading.program, nullptr, WNOHANG) == 0) ended_.push_back(reading.program);
    }
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
