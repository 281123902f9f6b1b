// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_barrier.hpp"

#include <fmt/format.h>

#include "base/awake.hpp"
#include "trainer/parallel/shared_word.hpp"

namespace dp::trainer {
namespace {

constexpr std::uint32_t kBroken = 1, kRound = 2;

tl::unexpected<Error> broken() {
    return fail(Fault::world,
                "an all-reduce or update in this node's memory failed: another rank has died or its node is "
                "cut off, see the lines before this one");
}

}  // namespace

Result<void> NodeBarrier::wait() {
    std::uint32_t state = shared_.state.load();  // no round ends before this rank has arrived
    if (state & kBroken) return broken();
    const std::uint32_t next = state + kRound;  // may wrap
    if (shared_.arrived.fetch_add(1) + 1 == ranks_) {
        shared_.arrived.store(0);  // nobody comes again before the next line
        shared_.state.fetch_add(kRound);
        wake_all(shared_.state);
        return {};
    }
    const bool changed = wait_awake(timeout_, [&](std::chrono::milliseconds slice) {
        const auto until = steady_now() + slice;
        for (;;) {
            state = shared_.state.load();
            if ((state & ~kBroken) == next || (state & kBroken) != 0) return true;
            const auto left = until - steady_now();
            if (left <= left.zero()) return false;
            wait_for_change(shared_.state, state, left);
        }
    });
    // First this: a rank that has passed may leave at once, which breaks the barrier for the next round.
    if ((state & ~kBroken) == next) return {};
    if (changed) return broken();
    return fail(Fault::world,
                "an all-reduce or update in this node's memory waited {} minutes for another rank "
                "of this node; `dpctl top` shows what each rank does",
                timeout_.count() / 60000);
}

void NodeBarrier::break_off() {
    shared_.state.fetch_or(kBroken);
    wake_all(shared_.state);
}

}  // namespace dp::trainer
