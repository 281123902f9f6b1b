// SPDX-License-Identifier: Apache-2.0
#include "stacks/read_stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>

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

// Of all its threads, by number.
std::vector<pid_t> children_of(pid_t pid) {
    std::vector<pid_t> children;
    const std::string tasks = fmt::format("/proc/{}/task", pid);
    std::error_code error;
    // A range-for would throw where the process ends meanwhile.
    for (std::filesystem::directory_iterator thread(tasks, error), end; !error && thread != end;
         thread.increment(error)) {
        const std::string text = read_file(thread->path().string() + "/children");
        for (const std::string_view child : split(text, ' '))
            if (const auto number = parse_number<pid_t>(child)) children.push_back(*number);
    }
    std::ranges::sort(children);
    return children;
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
    std::string unreadable;  // why the first of those that cannot be read cannot be
    for (size_t looked = 0; !left.empty(); ++looked) {
        if (looked == kMaxDescendants)
            return {task,
                    {},
                    fmt::format("none of the first {} processes of process {} runs Python", kMaxDescendants,
                                task)};
        const pid_t pid = left.front();
        left.pop_front();
        auto threads = read_python(pid);
        if (threads && *threads) return {pid, std::move(**threads), ""};
        if (!threads && unreadable.empty()) unreadable = threads.error().message;
        const auto children = children_of(pid);
        left.insert(left.end(), children.begin(), children.end());
    }
    return {
        task, {}, unreadable.empty() ? runs_no_python(task) + ", nor does what it has started" : unreadable};
}

}  // namespace dp::stacks
