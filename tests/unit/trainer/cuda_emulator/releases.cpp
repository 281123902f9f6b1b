// SPDX-License-Identifier: Apache-2.0
#include "releases.hpp"

#include <algorithm>

namespace dp::cuda_emulator {

bool Releases::knows(const Known& known, const Now& now) const {
    const Now& since = known.since;
    return is_ordered(since.barriers, since.exchanges, since.thread, false, now);
}

void Releases::note_fence(const Now& now) {
    Fences& fences = fenced_[{now.block, now.thread}];
    fences[{now.block, now.thread}] = now;
    for (const Known& known : known_[now.block])
        if (knows(known, now))
            for (const auto& [thread, fence] : known.fences) fences[thread] = fence;
}

void Releases::note_atomic(const void* place, const Now& now) {
    if (fenced_.empty()) return;
    Fences& released = released_[place];
    if (!released.empty()) {
        auto& known = known_[now.block];
        const auto is_same = [&](const Known& one) {
            return one.since.thread == now.thread && one.fences.size() == released.size() &&
                   std::ranges::equal(one.fences, released, [](const auto& a, const auto& b) {
                       return a.first == b.first && a.second.barriers == b.second.barriers &&
                              a.second.exchanges == b.second.exchanges;
                   });
        };
        if (std::ranges::none_of(known, is_same)) known.push_back({released, now});
    }
    const auto own = fenced_.find({now.block, now.thread});
    if (own == fenced_.end()) return;
    for (const auto& [thread, fence] : own->second) {
        Now& last = released[thread];
        if (last.barriers <= fence.barriers) last = fence;
    }
}

bool Releases::order(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread,
                     bool other_threads, const Now& now) const {
    const auto found = known_.find(now.block);
    if (found == known_.end()) return false;
    return std::ranges::any_of(found->second, [&](const Known& known) {
        return knows(known, now) && std::ranges::any_of(known.fences, [&](const auto& one) {
                   return is_ordered(barriers, exchanges, thread, other_threads, one.second);
               });
    });
}

}  // namespace dp::cuda_emulator
