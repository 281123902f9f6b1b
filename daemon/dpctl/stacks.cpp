// SPDX-License-Identifier: Apache-2.0
//
// `dpctl stacks`: what the ranks of a step, or processes of this machine, are doing; equal stacks are shown once.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
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

// The innermost call of Python, else the innermost whose line is known: below it are libraries. Without the file's folder.
std::string in_short(const ThreadStack& thread) {
    if (thread.frames.empty()) return thread.incomplete.empty() ? "no Python code" : thread.incomplete;
    const auto& frames = thread.frames;
    auto told = std::ranges::find_if(frames, [](const Frame& one) { return one.file.ends_with(".py"); });
    if (told == frames.end())
        told = std::ranges::find_if(frames, [](const Frame& one) { return one.line != 0; });
    const Frame& frame = told == frames.end() ? frames.front() : *told;
    const std::string_view file = std::string_view(frame.file).substr(frame.file.rfind('/') + 1);
    return fmt::format("{} ({})", frame.function, file_and_line(file, frame.line));
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

// A rank, or with no host a process of this machine.
struct Shown {
    const ProcessStacks* stacks = nullptr;
    uint32_t rank = 0;
    std::string host = {};
};

std::string who(const std::vector<const Shown*>& group) {
    const Shown& first = *group.front();
    if (!first.host.empty()) {
        if (group.size() == 1) return fmt::format("rank {} on {}", first.rank, first.host);
        std::vector<uint32_t> ranks;
        for (const Shown* one : group) ranks.push_back(one->rank);
        return fmt::format("{} ranks ({})", group.size(), compress_ranks(ranks));
    }
    if (group.size() == 1) return fmt::format("process {}", first.stacks->pid);
    std::vector<pid_t> pids;
    for (const Shown* one : group) pids.push_back(one->stacks->pid);
    return fmt::format("{} processes ({})", group.size(), fmt::join(pids, ", "));
}

std::string group_text(const std::vector<const Shown*>& group, bool all_threads) {
    const ProcessStacks& first = *group.front()->stacks;
    std::string out =
        who(group) + ": " + in_short(first.threads.front()) + "\n" + calls(first.threads.front());
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

std::string groups_text(const std::vector<Shown>& all, bool all_threads) {
    std::vector<std::vector<const Shown*>> groups;
    for (const Shown& shown : all)
        add_to_group(groups, shown, [&](const Shown& one, const Shown& other) {
            return are_alike(*one.stacks, *other.stacks, all_threads);
        });
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& one, const auto& other) { return one.size() > other.size(); });
    std::string out;
    for (const auto& group : groups) out += group_text(group, all_threads);
    return out;
}

nlohmann::ordered_json json_of(const ProcessStacks& process) {
    using Json = nlohmann::ordered_json;
    Json one{{"pid", process.pid}};
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
    return one;
}

constexpr size_t kLongest = 1000;
// Of a thread that a node tells.
constexpr size_t kMostCalls = 200;

// UTF-8, which protobuf has checked, without what changes a terminal: root asks users' daemons, and anybody can pretend to be one.
std::string shown(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
        const bool is_c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;
        const bool begins = (byte & 0xC0) != 0x80;
        if (begins && out.size() >= kLongest) break;
        out += byte < 0x20 || byte == 0x7F || is_c1 ? '?' : text[i];
        i += is_c1;
    }
    return out;
}

ProcessStacks stacks_of(const wire::RankStacks& rank) {
    ProcessStacks process{rank.pid(), {}, shown(rank.unknown())};
    for (const auto& thread : rank.threads()) {
        ThreadStack& one = process.threads.emplace_back();
        one.thread = thread.thread();
        one.incomplete = shown(thread.incomplete());
        for (const auto& frame : thread.frames())
            one.frames.push_back({shown(frame.function()), shown(frame.file()), frame.line()});
    }
    if (process.threads.empty() && process.unknown.empty()) process.unknown = "nothing is known of it";
    return process;
}

int show_step(const StacksOptions& options) {
    const auto found = connect_step(options.step, "stacks");
    if (!found) return complain(found.error().message);
    wire::FromRank question;
    question.mutable_stacks()->mutable_ranks()->Assign(options.ranks.begin(), options.ranks.end());
    question.mutable_stacks()->set_threads(options.threads);
    const auto answer = ask_step(found->socket.get(), question);
    if (!answer) return complain(answer.error().message);
    if (!answer->has_stacks()) return complain(kOtherVersion);
    const wire::StepStacks& stacks = answer->stacks();
    if (stacks.nodes().empty() && !stacks.problem().empty()) return complain(shown(stacks.problem()));
    int exit_code = print(options.json ? stacks_json(stacks) : stacks_text(stacks, options.threads));
    for (const std::string& line : not_known(stacks)) exit_code = complain(line);
    return exit_code;
}

}  // namespace

std::string stacks_text(const std::vector<ProcessStacks>& processes, bool all_threads) {
    std::vector<Shown> all;
    for (const ProcessStacks& process : processes)
        if (process.unknown.empty()) all.push_back({&process});
    return groups_text(all, all_threads);
}

std::string stacks_text(const wire::StepStacks& step, bool all_threads) {
    std::deque<ProcessStacks> kept;
    std::vector<Shown> all;
    for (const auto& node : step.nodes()) {
        for (const auto& rank : node.ranks()) {
            kept.push_back(stacks_of(rank));
            if (kept.back().unknown.empty()) all.push_back({&kept.back(), rank.rank(), shown(node.host())});
        }
    }
    std::ranges::stable_sort(all, {}, &Shown::rank);
    return groups_text(all, all_threads);
}

std::vector<std::string> not_known(const wire::StepStacks& step) {
    std::vector<std::string> lines;
    if (!step.problem().empty()) lines.push_back(shown(step.problem()));
    for (const auto& node : step.nodes()) {
        const std::string host = shown(node.host());
        if (!node.problem().empty()) lines.push_back(host + ": " + shown(node.problem()));
        for (const auto& rank : node.ranks())
            if (const std::string why = stacks_of(rank).unknown; !why.empty())
                lines.push_back(fmt::format("rank {} on {}: {}", rank.rank(), host, why));
    }
    return lines;
}

std::string stacks_json(const std::vector<ProcessStacks>& processes) {
    auto out = nlohmann::ordered_json::array();
    for (const ProcessStacks& process : processes) out.push_back(json_of(process));
    return out.dump(2) + "\n";
}

std::string stacks_json(const wire::StepStacks& step) {
    auto out = nlohmann::ordered_json::array();
    for (const auto& node : step.nodes()) {
        for (const auto& rank : node.ranks()) {
            nlohmann::ordered_json one{{"rank", rank.rank()}, {"host", shown(node.host())}};
            one.update(json_of(stacks_of(rank)));
            out.push_back(std::move(one));
        }
    }
    return out.dump(2) + "\n";
}

wire::RankStacks message_of(const ProcessStacks& process, bool all_threads) {
    wire::RankStacks rank;
    rank.set_pid(process.pid);
    rank.set_unknown(process.unknown);
    for (const ThreadStack& thread : process.threads) {
        auto& one = *rank.add_threads();
        one.set_thread(thread.thread);
        one.set_incomplete(thread.incomplete);
        for (const Frame& frame : thread.frames) {
            if (one.frames_size() == static_cast<int>(kMostCalls)) {
                one.set_incomplete(
                    fmt::format("{} outer calls are not shown", thread.frames.size() - kMostCalls));
                break;
            }
            auto& told = *one.add_frames();
            told.set_function(frame.function);
            told.set_file(frame.file);
            told.set_line(frame.line);
        }
        if (!all_threads) break;
    }
    return rank;
}

// One after the other, so that all but the one that hangs are known. Such messages, one behind the other, are one of all.
int print_stacks(const ReadStacksOptions& options) {
    // So that the daemon has patience for all of them (kReadingDeadline).
    constexpr std::chrono::milliseconds kNative{700};
    const stacks::WantedStacks wanted{options.threads ? stacks::Threads::all : stacks::Threads::main,
                                      std::chrono::steady_clock::now() + kNative};
    for (const pid_t pid : options.pids) {
        wire::NodeStacks stacks;
        *stacks.add_ranks() = message_of(stacks::read_stacks_of_task(pid, wanted), options.threads);
        if (!stacks.SerializeToFileDescriptor(STDOUT_FILENO))
            return complain("cannot write the answer: " + errno_text(errno));
    }
    return 0;
}

int show_stacks(const StacksOptions& options) {
    if (options.pids.empty()) return show_step(options);
    const stacks::WantedStacks wanted{options.threads ? stacks::Threads::all : stacks::Threads::main};
    std::vector<ProcessStacks> processes;
    for (auto pid = options.pids.begin(); pid != options.pids.end(); ++pid)
        if (std::find(options.pids.begin(), pid, *pid) == pid)
            processes.push_back(stacks::read_stacks(*pid, wanted));
    int exit_code = print(options.json ? stacks_json(processes) : stacks_text(processes, options.threads));
    for (const ProcessStacks& process : processes)
        if (!process.unknown.empty()) exit_code = complain(process.unknown);
    return exit_code;
}

}  // namespace dp
