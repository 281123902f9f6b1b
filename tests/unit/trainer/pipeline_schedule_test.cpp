// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/pipeline_schedule.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace dp::trainer {
namespace {

constexpr auto kFlush = PipelineSchedule::one_forward_one_backward, kAll = PipelineSchedule::gpipe;

// "F0 F1 B0 B1"
std::string text_of(const std::vector<Turn>& turns) {
    std::string text;
    for (const Turn& turn : turns) {
        if (turn.forward) text += "F" + std::to_string(turn.micro_batch) + " ";
        if (turn.backward) text += "B" + std::to_string(turn.micro_batch) + " ";
    }
    return text;
}

TEST(PipelineSchedule, IsThatOfThePapers) {
    struct Case {
        PipelineSchedule schedule;
        std::int64_t stage, stages, micro_batches;
        std::string turns;
    };
    for (const auto& [schedule, stage, stages, micro_batches, turns] :
         {Case{kFlush, 0, 1, 2, "F0 B0 F1 B1 "},
          {kFlush, 0, 2, 4, "F0 F1 B0 F2 B1 F3 B2 B3 "},
          {kFlush, 1, 2, 4, "F0 B0 F1 B1 F2 B2 F3 B3 "},
          {kFlush, 0, 4, 4, "F0 F1 F2 F3 B0 B1 B2 B3 "},
          {kFlush, 1, 4, 5, "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 "},
          {kFlush, 0, 4, 2, "F0 F1 B0 B1 "},
          {kAll, 0, 2, 3, "F0 F1 F2 B0 B1 B2 "},
          {kAll, 1, 2, 3, "F0 F1 F2 B0 B1 B2 "}})
        EXPECT_EQ(text_of(turns_of(schedule, stage, stages, micro_batches)), turns);
}

// What is between its passes has a slot of its own, and there are no more of them than slots_of() says.
TEST(PipelineSchedule, HasASlotForEachMicroBatchOnItsWay) {
    for (const PipelineSchedule schedule : {kFlush, kAll})
        for (std::int64_t stages = 2; stages < 6; ++stages)
            for (std::int64_t stage = 0; stage < stages; ++stage)
                for (std::int64_t micro_batches = 1; micro_batches < 12; ++micro_batches) {
                    const std::int64_t slots = slots_of(schedule, stage, stages, micro_batches);
                    std::set<std::int64_t> used;
                    std::size_t most = 0;
                    std::int64_t forward = 0, backward = 0;
                    for (const Turn& turn : turns_of(schedule, stage, stages, micro_batches)) {
                        const std::int64_t slot = turn.micro_batch % slots;
                        if (turn.forward) {
                            EXPECT_EQ(turn.micro_batch, forward++);
                            EXPECT_TRUE(used.insert(slot).second);
                        } else {
                            EXPECT_EQ(turn.micro_batch, backward++);
                            EXPECT_EQ(used.erase(slot), 1u);
                        }
                        most = std::max(most, used.size());
                    }
                    EXPECT_EQ(most, static_cast<std::size_t>(slots));
                    EXPECT_EQ(forward, micro_batches);
                    EXPECT_EQ(backward, micro_batches);
                }
}

TEST(PipelineSchedule, TheBubbleShrinksWithTheMicroBatches) {
    EXPECT_EQ(bubble_of(1, 4), 0);
    EXPECT_DOUBLE_EQ(bubble_of(2, 8), 1.0 / 9);
    EXPECT_DOUBLE_EQ(bubble_of(4, 4), 3.0 / 7);
}

}  // namespace
}  // namespace dp::trainer
