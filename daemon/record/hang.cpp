// SPDX-License-Identifier: Apache-2.0
#include "record/hang.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "record/entries.hpp"

namespace dp {
namespace {

bool is_same(const record::Hang::Stack& stack, const wire::RankStacks::Thread& calls) {
    const auto alike = [](const auto& one, const auto& other) {
        return one.function() == other.function() && one.file() == other.file() && one.line() == other.line();
    };
    return stack.incomplete() == calls.incomplete() &&
           std::equal(stack.frames().begin(), stack.frames().end(), calls.frames().begin(),
                      calls.frames().end(), alike);
}

void add_stack(record::Hang& hang, uint32_t rank, const wire::RankStacks::Thread& calls, bool is_culprit,
               const std::set<uint32_t>& culprits) {
    for (auto& stack : *hang.mutable_stacks())
        if (culprits.contains(stack.ranks(0)) == is_culprit && is_same(stack, calls))
            return stack.add_ranks(rank);
    if (hang.stacks_size() == static_cast<int>(kMostStacks))
        return hang.set_ranks_left_out(hang.ranks_left_out() + 1);
    auto& stack = *hang.add_stacks();
    stack.add_ranks(rank);
    stack.set_incomplete(printable(calls.incomplete(), kMaxCallText));
    for (const auto& frame : calls.frames()) {
        if (stack.frames_size() == static_cast<int>(kMostFrames)) break;
        auto& one = *stack.add_frames();
        one.set_function(printable(frame.function(), kMaxCallText));
        one.set_file(printable(frame.file(), kMaxCallText));
        one.set_line(frame.line());
    }
}

}  // namespace

record::Entry hang_entry(uint32_t generation, const wire::Hang& said,
                         const std::map<uint32_t, wire::RankStacks::Thread>& calls) {
    record::Entry entry;
    auto& hang = *entry.mutable_hang();
    hang.set_generation(generation);
    hang.set_reason(printable(said.reason(), kMaxRecordText));
    *hang.mutable_culprits() = said.culprits();
    const std::set<uint32_t> culprits(said.culprits().begin(), said.culprits().end());
    for (const bool is_culprit : {true, false})
        for (const auto& [rank, thread] : calls)
            if (culprits.contains(rank) == is_culprit) add_stack(hang, rank, thread, is_culprit, culprits);
    return entry;
}

CallsOfHang calls_of(const record::Hang& hang, uint32_t world_size) {
    const std::set<uint32_t> culprits(hang.culprits().begin(), hang.culprits().end());
    CallsOfHang all{{}, hang.ranks_left_out()};
    for (const auto& stack : hang.stacks()) {
        if (all.stacks.size() == kMostStacks) break;
        std::set<uint32_t> ranks(stack.ranks().begin(), stack.ranks().end());
        ranks.erase(ranks.lower_bound(world_size), ranks.end());
        if (ranks.empty()) continue;
        RecordedCalls& calls = all.stacks.emplace_back();
        calls.ranks.assign(ranks.begin(), ranks.end());
        calls.has_culprit =
            std::ranges::any_of(ranks, [&](uint32_t rank) { return culprits.contains(rank); });
        calls.incomplete = printable(stack.incomplete(), kMaxCallText);
        for (const auto& frame : stack.frames()) {
            if (calls.frames.size() == kMostFrames) break;
            calls.frames.push_back({printable(frame.function(), kMaxCallText),
                                    printable(frame.file(), kMaxCallText), frame.line()});
        }
    }
    return all;
}

void CallsOfHang::merge(CallsOfHang more) {
    ranks_left_out += more.ranks_left_out;
    for (RecordedCalls& one : more.stacks) {
        const auto same = std::ranges::find_if(stacks, [&](const auto& other) { return other.is_like(one); });
        if (same != stacks.end()) {
            same->ranks.insert(same->ranks.end(), one.ranks.begin(), one.ranks.end());
            std::ranges::sort(same->ranks);
        } else if (stacks.size() < kMostStacksOfRun) {
            stacks.push_back(std::move(one));
        } else {
            ranks_left_out += one.ranks.size();
        }
    }
    std::ranges::stable_sort(stacks, [](const RecordedCalls& one, const RecordedCalls& other) {
        return std::pair(one.has_culprit, one.ranks.size()) >
               std::pair(other.has_culprit, other.ranks.size());
    });
}

std::string in_words(const RecordedCalls::Frame& frame) {
    const std::string line = frame.line == 0 ? "" : ":" + std::to_string(frame.line);
    return frame.function + (frame.file.empty() && line.empty() ? "" : " (" + frame.file + line + ")");
}

}  // namespace dp
