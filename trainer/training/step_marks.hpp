// SPDX-License-Identifier: Apache-2.0
//
// The step at which parameters and optimizer stand, so that a rank that survives another's death knows whether they
// are whole. Where the ranks of a node share memory, each of them updates a part, and each has a mark there: what a
// dead rank had begun can be read in its mark. train_step.cpp sets them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class StepMarks {
 public:
    // Every rank makes one. Nothing is whole before the first end().
    StepMarks(Device& device, const Communicator& communicator) {
        const auto share = communicator.node_share();
        if (!share) return;
        shared_ = device.make_of_node(Type::i64, {share->ranks});
        marks_ = {shared_.data<std::int64_t>(), static_cast<std::size_t>(share->ranks)};
        mine_ = static_cast<std::size_t>(share->index);
    }
    StepMarks(const StepMarks&) = delete;
    StepMarks& operator=(const StepMarks&) = delete;

    // This rank's part is about to change, and then stands at the step.
    void begin() { mark(kChanges); }
    void end(std::int64_t step) { mark(step + 1); }

    // The newest step that any part has reached; nullopt if a part is torn, or is more than one step behind. Call it once
    // no rank changes them.
    std::optional<std::int64_t> newest() const {
        const std::vector<std::int64_t> all = read();
        const auto [least, most] = std::ranges::minmax(all);
        return least > kChanges && most - least <= 1 ? std::optional(most - 1) : std::nullopt;
    }
    // The same for this rank's part alone, whatever state the others' are in. `completes`: a step that another rank of the
    // node has taken counts as taken.
    std::optional<std::int64_t> of_this_rank(bool completes) const {
        const std::vector<std::int64_t> all = read();
        const std::int64_t here = all[mine_], most = std::ranges::max(all);
        if (here <= kChanges) return std::nullopt;
        return (completes && most == here + 1 ? most : here) - 1;
    }
    // The ranks of this node whose parts are behind that, by local rank.
    std::vector<std::int64_t> behind() const {
        const std::vector<std::int64_t> all = read();
        std::vector<std::int64_t> out;
        for (std::size_t rank = 0; rank < all.size(); ++rank)
            if (all[rank] < std::ranges::max(all)) out.push_back(static_cast<std::int64_t>(rank));
        return out;
    }

 private:
    static constexpr std::int64_t kChanges = 0;  // fresh memory is zero
    std::int64_t alone_ = kChanges;
    Tensor shared_;
    std::span<std::int64_t> marks_{&alone_, 1};  // by local rank
    std::size_t mine_ = 0;

    std::vector<std::int64_t> read() const {
        std::vector<std::int64_t> all;
        for (std::int64_t& one : marks_) all.push_back(std::atomic_ref(one).load());
        return all;
    }
    void mark(std::int64_t value) { std::atomic_ref(marks_[mine_]).store(value); }
};

}  // namespace dp::trainer
