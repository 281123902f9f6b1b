// SPDX-License-Identifier: Apache-2.0
//
// Which ranks an NCCL communicator is of, and what for: parallel/world.cpp asks open_nccl() (open.hpp) for it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/communicator.hpp"

namespace dp::trainer {

// What ranks that are the stages of a pipeline send each other: nothing, activations to the next and gradients to the one before, or in
// an interleaved schedule also from the last to the first and back.
enum class StageMessages { none, in_a_row, in_a_ring };

struct NcclGroup {
    std::string name = "trainer";             // told apart from other groups of the same members by it
    std::vector<std::uint32_t> members = {};  // ranks of the world, ascending; empty: all
    bool survives = false;                    // as Communicator::survives_deaths(), if this NCCL can do that
    StageMessages messages = StageMessages::none;
};

// Messages that have a communicator of their own (cuda/nccl_communicator.cpp says why): activations to a later stage or from the last to
// the first, gradients to an earlier stage or from the first to the last.
enum class StageLink { up, from_last, down, from_first };
struct NamedLink {
    StageLink link;
    const char* name;
    bool closes_ring;  // only in a ring
};
inline constexpr NamedLink kStageLinks[] = {{StageLink::up, "/up", false},
                                            {StageLink::from_last, "/from-last", true},
                                            {StageLink::down, "/down", false},
                                            {StageLink::from_first, "/from-first", true}};

constexpr StageLink link_of(Lane lane, std::int64_t from, std::int64_t to) {
    if (lane == Lane::activations) return from < to ? StageLink::up : StageLink::from_last;
    return from > to ? StageLink::down : StageLink::from_first;
}

// Who sends to whom over a link of so many stages, {from, to}, in an order in which they can meet one after another: neighbours, and the
// ends, which exchange gradients (training/train_step.cpp).
inline std::vector<std::pair<std::int64_t, std::int64_t>> senders_of(StageLink link, std::int64_t stages) {
    const std::int64_t last = stages - 1;
    if (link == StageLink::from_last) return {{last, 0}};
    if (link == StageLink::from_first) return {{0, last}};
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (std::int64_t stage = 0; stage < last; ++stage) all.emplace_back(stage, stage + 1);
    if (stages > 2) all.emplace_back(0, last);
    if (link == StageLink::down)
        for (auto& [from, to] : all) from = last - from, to = last - to;
    return all;
}

}  // namespace dp::trainer
