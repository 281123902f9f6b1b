// SPDX-License-Identifier: Apache-2.0
#include "stacks/read_stacks.hpp"

#include <deque>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "stacks/process.hpp"
#include "stacks/python.hpp"

namespace dp::stacks {
namespace {

// How many processes to look at for one that runs Python.
constexpr size_t kMaxDescendants = 64;

// Nothing if the process runs no Python.
Try<std::optional<std::vector<ThreadStack>>> read_python(pid_t pid) {
    const auto process = DP_TRY(Process::open(pid));
    const std::string name = "process " + std::to_string(pid);
    const auto python = Python::find(process);
    if (!python) {
        DP_TRY(Process::open(pid));  // it may have ended meanwhile
        return fail(name + ": " + python.error().message);
    }
    if (!*python) return std::nullopt;
    auto threads = (*python)->stacks();
    if (threads.empty()) return fail(name + "'s Python has not started, or is ending");
    return threads;
}

std::string runs_no_python(pid_t pid) {
    return "process " + std::to_string(pid) + " runs no Python";
}

}  // namespace

ProcessStacks read_stacks(pid_t pid) {
    auto threads = read_python(pid);
    if (!threads) return {pid, {}, threads.error().message};
    if (!*threads) return {pid, {}, runs_no_python(pid)};
    return {pid, std::move(**threads), ""};
}

ProcessStacks read_stacks_of_task(pid_t task) {
    std::deque<pid_t> left{task};
    for (size_t looked = 0; !left.empty() && looked < kMaxDescendants; ++looked) {
        const pid_t pid = left.front();
        left.pop_front();
        auto threads = read_python(pid);
        if (threads && *threads) return {pid, std::move(**threads), ""};
        if (!threads && pid == task) return {pid, {}, threads.error().message};
        const std::string name = std::to_string(pid);
        const std::string children = read_file("/proc/" + name + "/task/" + name + "/children");
        for (const std::string_view child : split(children, ' '))
            if (const auto number = parse_number<pid_t>(child)) left.push_back(*number);
    }
    return {task, {}, runs_no_python(task) + ", nor does what it has started"};
}

}  // namespace dp::stacks
