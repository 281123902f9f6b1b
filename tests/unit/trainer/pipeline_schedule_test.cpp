// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/pipeline_schedule.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "trainer/parallel/node_messages.hpp"

namespace dp::trainer {
namespace {

constexpr auto kFlush = PipelineSchedule::one_forward_one_backward, kAll = PipelineSchedule::gpipe,
               kInterleaved = PipelineSchedule::interleaved;

// "F0 F1 B0 B1"; of later chunks "F0' F0''".
std::string text_of(const std::vector<Turn>& turns) {
    std::string text;
    for (const Turn& turn : turns) {
        const std::string of =
            std::to_string(turn.micro_batch) + std::string(static_cast<std::size_t>(turn.chunk), '\'') + " ";
        if (turn.forward) text += "F" + of;
        if (turn.backward) text += "B" + of;
    }
    return text;
}

// All schedules of small pipelines, on each stage.
std::vector<Passes> small_ones() {
    std::vector<Passes> all;
    for (std::int64_t stages = 2; stages < 6; ++stages)
        for (std::int64_t micro_batches = 1; micro_batches < 13; ++micro_batches)
            for (std::int64_t chunks = 1; chunks < 5; ++chunks)
                for (const PipelineSchedule schedule : {kFlush, kAll, kInterleaved})
                    if (schedule == kInterleaved ? micro_batches % stages == 0 : chunks == 1)
                        all.push_back({schedule, 0, stages, chunks, micro_batches});
    return all;
}

TEST(PipelineSchedule, IsThatOfThePapers) {
    struct Case {
        Passes passes;
        std::string turns;
    };
    for (const auto& [passes, turns] :
         {Case{{kFlush, 0, 1, 1, 2}, "F0 B0 F1 B1 "},
          {{kFlush, 0, 2, 1, 4}, "F0 F1 B0 F2 B1 F3 B2 B3 "},
          {{kFlush, 1, 2, 1, 4}, "F0 B0 F1 B1 F2 B2 F3 B3 "},
          {{kFlush, 0, 4, 1, 4}, "F0 F1 F2 F3 B0 B1 B2 B3 "},
          {{kFlush, 1, 4, 1, 5}, "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 "},
          {{kFlush, 0, 4, 1, 2}, "F0 F1 B0 B1 "},
          {{kAll, 0, 2, 1, 3}, "F0 F1 F2 B0 B1 B2 "},
          {{kAll, 1, 2, 1, 3}, "F0 F1 F2 B0 B1 B2 "},
          {{kInterleaved, 0, 1, 2, 2}, "F0 B0 F1 B1 "},
          {{kInterleaved, 0, 2, 2, 4}, "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3 "},
          {{kInterleaved, 1, 2, 2, 4}, "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3 "},
          {{kInterleaved, 0, 2, 3, 2}, "F0 F1 F0' F1' F0'' F1'' B0'' B1'' B0' B1' B0 B1 "}})
        EXPECT_EQ(text_of(turns_of(passes)), turns);
}

// What is between its passes has a slot of its own, and there are no more of them than slots_of() says.
TEST(PipelineSchedule, HasASlotForWhatIsOnItsWay) {
    for (Passes passes : small_ones())
        for (; passes.stage < passes.stages; ++passes.stage) {
            std::set<std::int64_t> used;
            std::set<std::pair<std::int64_t, std::int64_t>> forward, backward;
            std::size_t most = 0;
            for (const Turn& turn : turns_of(passes)) {
                const std::pair of{turn.micro_batch, turn.chunk};
                if (turn.forward) {
                    EXPECT_TRUE(forward.insert(of).second);
                    EXPECT_TRUE(used.insert(turn.slot).second);
                } else {
                    EXPECT_TRUE(forward.contains(of) && backward.insert(of).second);
                    EXPECT_EQ(used.erase(turn.slot), 1u);
                }
                most = std::max(most, used.size());
            }
            EXPECT_EQ(most, static_cast<std::size_t>(slots_of(passes)));
            EXPECT_EQ(backward.size(), static_cast<std::size_t>(passes.micro_batches * passes.chunks));
        }
}

// Of a pass to the next or the one before, which a stage has sent and its neighbour not taken.
struct Message {
    std::int64_t micro_batch, chunk;  // where it arrives
    bool operator==(const Message&) const = default;
};

// The stages of a pipeline, each in its order, with messages that end only when they are taken, as Gloo's do, and of each lane as
// many on their way as a node's memory has places for.
class Pipeline {
 public:
    Pipeline(Passes passes, std::size_t places) : passes_(passes), places_(places) {
        for (; passes.stage < passes.stages; ++passes.stage) {
            stages_.emplace_back();
            stages_.back().turns = turns_of(passes);
            stages_.back().sent.resize(static_cast<std::size_t>(slots_of(passes)));
            stages_.back().gradients_sent.resize(passes.chunks > 1 ? 2 : 1);
        }
    }
    // Whether all stages come to their end, each message the one that is expected.
    bool ends() {
        for (bool moves = true; moves;) {
            moves = false;
            for (std::size_t stage = 0; stage < stages_.size(); ++stage)
                while (step(stage)) moves = true;
        }
        return std::ranges::all_of(stages_, [](const Stage& one) { return one.next == one.turns.size(); });
    }

 private:
    struct Stage {
        std::vector<Turn> turns;
        std::size_t next = 0;
        std::deque<Message> activations, gradients;  // that came in
        std::vector<std::optional<Message>> sent;    // of each slot, to the next stage
        // To the one before, in turn: where stages are a ring, one would have them wait for each other.
        std::vector<std::optional<Message>> gradients_sent;
        std::size_t turn = 0;
    };
    Passes passes_;
    std::size_t places_;
    std::vector<Stage> stages_;

    Stage& at(std::size_t stage) { return stages_[stage % stages_.size()]; }
    // Whether it is still under way, in the lane.
    static bool waits(const std::optional<Message>& sent, const std::deque<Message>& lane) {
        return sent && std::ranges::find(lane, *sent) != lane.end();
    }
    static bool take(std::deque<Message>& lane, const Turn& turn) {
        if (lane.empty() || lane.front() != Message{turn.micro_batch, turn.chunk}) return false;
        lane.pop_front();
        return true;
    }
    // Whether the stage could take its next turn.
    bool step(std::size_t number) {
        Stage& here = at(number);
        if (here.next == here.turns.size()) return false;
        const Turn& turn = here.turns[here.next];
        const bool is_first = number == 0, is_last = number + 1 == stages_.size();
        Stage& before = at(number + stages_.size() - 1);
        Stage& after = at(number + 1);
        if (turn.forward) {
            auto& sent = here.sent[static_cast<std::size_t>(turn.slot)];
            if (waits(sent, after.activations) || after.activations.size() == places_) return false;
            if (!(is_first && turn.chunk == 0) && !take(here.activations, turn)) return false;
            if (!(is_last && turn.chunk + 1 == passes_.chunks)) {
                sent = Message{turn.micro_batch, turn.chunk + (is_last ? 1 : 0)};
                after.activations.push_back(*sent);
            }
        } else {
            auto& sent = here.gradients_sent[here.turn % here.gradients_sent.size()];
            if (waits(sent, before.gradients) || before.gradients.size() == places_) return false;
            if (!(is_last && turn.chunk + 1 == passes_.chunks) && !take(here.gradients, turn)) return false;
            if (!(is_first && turn.chunk == 0)) {
                sent = Message{turn.micro_batch, turn.chunk - (is_first ? 1 : 0)};
                before.gradients.push_back(*sent);
            }
            ++here.turn;
        }
        ++here.next;
        return true;
    }
};

TEST(PipelineSchedule, ComesToItsEndWithMessagesThatWaitToBeTaken) {
    for (const Passes& passes : small_ones())
        EXPECT_TRUE(Pipeline(passes, NodeMessages::kSlots).ends())
            << name_of(passes.schedule) << ", " << passes.stages << " stages, " << passes.chunks
            << " chunks, " << passes.micro_batches << " micro-batches";
}

TEST(PipelineSchedule, TheBubbleShrinksWithTheMicroBatches) {
    EXPECT_EQ(bubble_of(1, 4), 0);
    EXPECT_DOUBLE_EQ(bubble_of(2, 8), 1.0 / 9);
    EXPECT_DOUBLE_EQ(bubble_of(4, 4), 3.0 / 7);
    EXPECT_DOUBLE_EQ(bubble_of(4, 4, 2), 3.0 / 11) << "and with the chunks";
}

}  // namespace
}  // namespace dp::trainer
