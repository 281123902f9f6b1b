// SPDX-License-Identifier: Apache-2.0
#include "releases.hpp"

#include <algorithm>

namespace dp::cuda_emulator {

bool Releases::knows(const Known& known, const Now& now) const {
    const Now& since = known.since;
    return is_ordered(since.barriers, since.exchanges, since.thread, false, now);
}

// A thread that knows it already does so since then.
void Releases::learn(const Fences& fences, const Now& now, bool is_fenced) {
    auto& known = known_[now.block];
    const auto is_same = [&](const Known& one) {
        return one.since.thread == now.thread && one.is_fenced == is_fenced &&
               one.fences.size() == fences.size() &&
               std::ranges::equal(one.fences, fences, [](const auto& a, const auto& b) {
                   return a.first == b.first && a.second.barriers == b.second.barriers &&
                          a.second.exchanges == b.second.exchanges;
               });
    };
    if (std::ranges::none_of(known, is_same)) known.push_back({fences, now, is_fenced});
}

void Releases::note_fence(const Now& now) {
    Fences& fences = fenced_[{now.block, now.thread}];
    fences[{now.block, now.thread}] = now;
    std::vector<Fences> learnt;
    for (const Known& known : known_[now.block]) {
        if (!knows(known, now)) continue;
        for (const auto& [thread, fence] : known.fences) fences[thread] = fence;
        if (!known.is_fenced) learnt.push_back(known.fences);
    }
    for (const Fences& one : learnt) learn(one, now, true);
}

void Releases::note_atomic(const void* place, const Now& now) {
    if (fenced_.empty()) return;
    Fences& released = released_[place];
    if (!released.empty()) learn(released, now, false);
    const auto own = fenced_.find({now.block, now.thread});
    if (own == fenced_.end()) return;
    for (const auto& [thread, fence] : own->second) {
        Now& last = released[thread];
        if (last.barriers <= fence.barriers) last = fence;
    }
}

Releases::Order Releases::order(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread,
                                bool other_threads, const Now& now) const {
    const auto found = known_.find(now.block);
    if (found == known_.end()) return Order::none;
    Order most = Order::none;
    for (const Known& known : found->second) {
        if (!knows(known, now) || std::ranges::none_of(known.fences, [&](const auto& one) {
                return is_ordered(barriers, exchanges, thread, other_threads, one.second);
            }))
            continue;
        if (known.is_fenced || !now.may_be_cached) return Order::whole;
        most = Order::but_for_a_fence;
    }
    return most;
}

}  // namespace dp::cuda_emulator
