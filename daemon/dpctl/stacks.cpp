// SPDX-License-Identifier: Apache-2.0
//
// `dpctl stacks`: what processes of this machine are doing; equal stacks are shown once.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "stacks/read_stacks.hpp"

namespace dp {
namespace {

using stacks::Frame;
using stacks::ProcessStacks;
using stacks::ThreadStack;

std::string file_and_line(std::string_view file, uint32_t line) {
    return line == 0 ? std::string(file) : fmt::format("{}:{}", file, line);
}

std::string in_words(const Frame& frame) {
    return fmt::format("{} ({})", frame.function, file_and_line(frame.file, frame.line));
}

// Without the file's folder.
std::string in_short(const ThreadStack& thread) {
    if (thread.frames.empty()) return thread.incomplete.empty() ? "no Python code" : thread.incomplete;
    const Frame& innermost = thread.frames.front();
    const std::string_view file = std::string_view(innermost.file).substr(innermost.file.rfind('/') + 1);
    return fmt::format("{} ({})", innermost.function, file_and_line(file, innermost.line));
}

bool are_alike(const ThreadStack& one, const ThreadStack& other) {
    return one.frames == other.frames && one.incomplete == other.incomplete;
}

bool are_alike(const ProcessStacks& one, const ProcessStacks& other, bool all_threads) {
    if (!all_threads) return are_alike(one.threads.front(), other.threads.front());
    return std::equal(one.threads.begin(), one.threads.end(), other.threads.begin(), other.threads.end(),
                      [](const ThreadStack& a, const ThreadStack& b) { return are_alike(a, b); });
}

std::string calls(const ThreadStack& thread) {
    std::string out;
    for (auto frame = thread.frames.begin(); frame != thread.frames.end();) {
        const auto other =
            std::find_if(frame, thread.frames.end(), [&](const Frame& one) { return one != *frame; });
        out += "    " + in_words(*frame);
        if (other - frame > 1) out += fmt::format(", {} times", other - frame);
        out += "\n";
        frame = other;
    }
    if (!thread.frames.empty() && !thread.incomplete.empty()) out += "    (" + thread.incomplete + ")\n";
    return out;
}

// To the group whose first is like it, else to one of its own.
template <typename One, typename Alike>
void add_to_group(std::vector<std::vector<const One*>>& groups, const One& one, Alike alike) {
    const auto like = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return alike(*group.front(), one); });
    if (like == groups.end())
        groups.push_back({&one});
    else
        like->push_back(&one);
}

std::string group_text(const std::vector<const ProcessStacks*>& group, bool all_threads) {
    const ProcessStacks& first = *group.front();
    std::vector<pid_t> pids;
    for (const ProcessStacks* one : group) pids.push_back(one->pid);
    std::string out = group.size() == 1
                          ? fmt::format("process {}", pids.front())
                          : fmt::format("{} processes ({})", group.size(), fmt::join(pids, ", "));
    out += ": " + in_short(first.threads.front()) + "\n" + calls(first.threads.front());
    if (!all_threads) return out;
    std::vector<std::vector<const ThreadStack*>> threads;
    for (size_t i = 1; i < first.threads.size(); ++i)
        add_to_group(threads, first.threads[i],
                     [](const auto& one, const auto& other) { return are_alike(one, other); });
    for (const auto& alike : threads) {
        std::vector<pid_t> numbers;
        for (const ThreadStack* one : alike) numbers.push_back(one->thread);
        // The numbers are those of one process.
        const std::string which =
            group.size() > 1
                ? plural(alike.size(), "thread")
                : fmt::format("{} {}", alike.size() > 1 ? "threads" : "thread", fmt::join(numbers, ", "));
        out += fmt::format("  and {}: {}\n", which, in_short(*alike.front())) + calls(*alike.front());
    }
    return out;
}

}  // namespace

std::string stacks_text(const std::vector<ProcessStacks>& processes, bool all_threads) {
    std::vector<std::vector<const ProcessStacks*>> groups;
    for (const ProcessStacks& process : processes) {
        if (!process.unknown.empty()) continue;
        add_to_group(groups, process,
                     [&](const auto& one, const auto& other) { return are_alike(one, other, all_threads); });
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& one, const auto& other) { return one.size() > other.size(); });
    std::string out;
    for (const auto& group : groups) out += group_text(group, all_threads);
    return out;
}

std::string stacks_json(const std::vector<ProcessStacks>& processes) {
    using Json = nlohmann::ordered_json;
    Json out = Json::array();
    for (const ProcessStacks& process : processes) {
        Json& one = out.emplace_back(Json{{"pid", process.pid}});
        if (!process.unknown.empty()) one["unknown"] = process.unknown;
        Json threads = Json::array();
        for (const ThreadStack& thread : process.threads) {
            Json frames = Json::array();
            for (const Frame& frame : thread.frames)
                frames.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
            threads.push_back({{"thread", thread.thread}, {"frames", std::move(frames)}});
            if (!thread.incomplete.empty()) threads.back()["incomplete"] = thread.incomplete;
        }
        one["threads"] = std::move(threads);
    }
    return out.dump(2) + "\n";
}

int show_stacks(const StacksOptions& options) {
    std::vector<ProcessStacks> processes;
    for (auto pid = options.pids.begin(); pid != options.pids.end(); ++pid)
        if (std::find(options.pids.begin(), pid, *pid) == pid) processes.push_back(stacks::read_stacks(*pid));
    int exit_code = print(options.json ? stacks_json(processes) : stacks_text(processes, options.threads));
    for (const ProcessStacks& process : processes)
        if (!process.unknown.empty()) exit_code = complain(process.unknown);
    return exit_code;
}

}  // namespace dp
