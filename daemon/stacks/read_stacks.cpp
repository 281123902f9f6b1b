// SPDX-License-Identifier: Apache-2.0
#include "stacks/read_stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "stacks/children.hpp"
#include "stacks/native.hpp"
#include "stacks/process.hpp"
#include "stacks/python.hpp"
#include "stacks/thread_snapshot.hpp"

namespace dp::stacks {
namespace {

// How many processes to look at for one that runs Python.
constexpr size_t kMaxDescendants = 64;
// How many threads' native calls are read.
constexpr size_t kMaxNativeThreads = 200;

Try<std::vector<ThreadStack>> read_native(const Process& process, const WantedStacks& wanted) {
    std::vector<std::pair<pid_t, pid_t>>
        numbers;  // as the process sees them, and as we do; the main thread first
    for (const auto& one : process.threads())
        numbers.insert(one.second == process.pid() ? numbers.begin() : numbers.end(), one);
    if (numbers.size() > kMaxNativeThreads) numbers.resize(kMaxNativeThreads);
    NativeReader reader(process, "", wanted.native_until);
    std::vector<ThreadStack> stacks;
    std::string why = "it has ended";
    for (const auto& [there, here] : numbers) {
        const NativeStack stack = reader.read(here);
        // The main thread may have ended before the others.
        if (stack.frames.empty() && stacks.empty()) {
            if (here == process.pid()) why = stack.incomplete;
            continue;
        }
        stacks.push_back({there, shown_frames(stack.frames), stack.incomplete});
        if (wanted.threads == Threads::main) break;
    }
    if (stacks.empty()) return fail("process " + std::to_string(process.pid()) + " cannot be read: " + why);
    return stacks;
}

// Of these threads the native ones, and if all are asked for those of the others.
std::map<pid_t, NativeStack> native_stacks(const Process& process, const std::string& python,
                                           const std::vector<ThreadStack>& of, const WantedStacks& wanted) {
    const auto numbers = process.threads();
    std::vector<pid_t> threads;
    threads.reserve(of.size() + numbers.size());
    for (const ThreadStack& one : of) threads.push_back(one.thread);
    if (wanted.threads == Threads::main)
        threads.resize(1);
    else
        for (const auto& [there, here] : numbers) threads.push_back(there);
    NativeReader reader(process, python, wanted.native_until);
    std::map<pid_t, NativeStack> stacks;
    for (const pid_t thread : threads)
        if (const auto number = numbers.find(thread);
            number != numbers.end() && !stacks.contains(thread) && stacks.size() < kMaxNativeThreads)
            stacks[thread] = reader.read(number->second);
    return stacks;
}

// Python's calls are read before and after: only where they are the same do the native ones belong to them.
std::vector<ThreadStack> read_both(const Process& process, const Python& python, const WantedStacks& wanted) {
    const auto before = python.stacks();
    if (before.empty()) return {};
    auto native = native_stacks(process, python.file(), before, wanted);
    auto stacks = python.stacks();
    if (wanted.threads == Threads::main && stacks.size() > 1) stacks.resize(1);
    for (ThreadStack& one : stacks) {
        const auto inner = native.extract(one.thread);
        if (inner.empty() || std::ranges::find(before, one) == before.end()) continue;
        const NativeStack& found = inner.mapped();
        one.has_native = !found.frames.empty();
        if (!one.frames.empty()) {
            const auto frames = shown_frames(below_python(found.frames, python.file()));
            one.frames.insert(one.frames.begin(), frames.begin(), frames.end());
        } else if (one.incomplete.empty()) {
            one.frames = shown_frames(found.frames);
            one.incomplete = found.incomplete;
        }
    }
    for (const auto& [thread, stack] : native)
        if (wanted.threads == Threads::all && !stack.frames.empty())
            stacks.push_back({thread, shown_frames(stack.frames), stack.incomplete});
    return stacks;
}

// Nothing if the process runs no Python.
Try<std::optional<std::vector<ThreadStack>>> read_python(pid_t pid, const WantedStacks& wanted) {
    const auto process = DP_TRY(Process::open(pid));
    const std::string name = "process " + std::to_string(pid);
    const auto python = Python::find(process);
    if (!python) {
        DP_TRY(Process::open(pid));  // it may have ended meanwhile
        return fail(name + ": " + python.error().message);
    }
    if (!*python) return std::nullopt;
    auto stacks = read_both(process, **python, wanted);
    if (!stacks.empty()) return stacks;
    if (auto native = read_native(process, wanted)) return *std::move(native);
    return fail(name + "'s Python has not started, or is ending");
}

ProcessStacks read_without_python(pid_t pid, const WantedStacks& wanted) {
    const auto process = Process::open(pid);
    if (!process) return {pid, {}, process.error().message};
    auto stacks = read_native(*process, wanted);
    if (!stacks) return {pid, {}, stacks.error().message};
    return {pid, *std::move(stacks), ""};
}

}  // namespace

ProcessStacks read_stacks(pid_t pid, const WantedStacks& wanted) {
    auto python = read_python(pid, wanted);
    if (!python) return {pid, {}, python.error().message};
    if (!*python) return read_without_python(pid, wanted);
    return {pid, std::move(**python), ""};
}

ProcessStacks read_stacks_of_task(pid_t task, const WantedStacks& wanted) {
    std::deque<pid_t> left{task};
    std::string unreadable;  // why the first of those that cannot be read cannot be
    for (size_t looked = 0; !left.empty() && looked < kMaxDescendants; ++looked) {
        const pid_t pid = left.front();
        left.pop_front();
        auto stacks = read_python(pid, wanted);
        if (stacks && *stacks) return {pid, std::move(**stacks), ""};
        if (!stacks && unreadable.empty()) unreadable = stacks.error().message;
        const auto children = children_of(pid);
        left.insert(left.end(), children.begin(), children.end());
    }
    if (!unreadable.empty()) return {task, {}, unreadable};
    return read_without_python(awaited_by(task), wanted);
}

}  // namespace dp::stacks
