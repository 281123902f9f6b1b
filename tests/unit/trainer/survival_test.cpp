// SPDX-License-Identifier: Apache-2.0
//
// A training that goes on when ranks have died: what survivors hold, who gives it to whom, and that the end is that of a
// training which nobody disturbed, to the bit.
#include "trainer/training/survival.hpp"

#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "patterns.hpp"
#include "saved_training.hpp"
#include "trainer/training/schedule.hpp"
#include "trainer/training/step_marks.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- marks

// A rank of a node of three.
class OfNode final : public Communicator {
 public:
    explicit OfNode(std::int64_t index) : index_(index) {}
    std::string_view name() const override { return "of node"; }
    std::int64_t rank() const override { return index_; }
    std::int64_t size() const override { return 3; }
    Result<void> all_reduce(const Tensor&, Reduction) override { return {}; }
    Result<void> all_gather(const Tensor&) override { return {}; }
    Result<void> broadcast(const Tensor&, std::int64_t) override { return {}; }
    std::optional<NodeShare> node_share() const override { return NodeShare{index_, 3, 3}; }

 private:
    std::int64_t index_;
};

TEST(StepMarks, TellWhetherAllPartsOfANodeAreWhole) {
    constexpr std::int64_t kTorn = -1;
    const struct {
        std::array<std::int64_t, 3> stand;
        std::optional<std::int64_t> newest;
        std::vector<std::int64_t> behind;
    } cases[] = {
        {{7, 7, 7}, 7, {}},     {{0, 0, 0}, 0, {}},       {{7, 8, 8}, 8, {0}},
        {{8, 7, 7}, 8, {1, 2}}, {{7, kTorn, 7}, {}, {1}}, {{7, 9, 8}, {}, {0, 2}},  // no step leaves this
    };
    for (const auto& c : cases) {
        const auto device = open_cpu(1);
        const auto memory = std::make_shared<std::array<std::int64_t, 3>>();
        device->set_shared_memory({{}, [&](std::size_t) { return std::shared_ptr<void>(memory); }, 3});
        std::deque<StepMarks> marks;
        for (std::int64_t index = 0; index < 3; ++index) marks.emplace_back(*device, OfNode(index));
        for (std::size_t index = 0; index < 3; ++index)
            c.stand[index] == kTorn ? marks[index].begin() : marks[index].end(c.stand[index]);
        for (const auto& one : marks) {
            EXPECT_EQ(one.newest(), c.newest);
            EXPECT_EQ(one.behind(), c.behind);
        }
    }
}

TEST(StepMarks, NothingIsWholeBeforeTheFirstEnd) {
    const auto device = open_cpu(1);
    SingleCommunicator alone;
    StepMarks marks(*device, alone);
    EXPECT_EQ(marks.newest(), std::nullopt);
    marks.end(0);
    EXPECT_EQ(marks.newest(), 0);
    marks.begin();
    EXPECT_EQ(marks.newest(), std::nullopt);
}

// ---- who gives what to whom

struct Held final : Remains {
    std::optional<Progress> held;
    std::vector<std::vector<float>> numbers;
    Held(std::optional<Progress> progress, std::vector<std::vector<float>> state)
        : held(progress), numbers(std::move(state)) {}
    std::optional<Progress> progress() override { return held; }
    std::int64_t world() const override { return 8; }
    std::int64_t reached() const override { return held ? held->step : 9; }
    std::vector<std::vector<float>> state() override { return numbers; }
};

TEST(Survival, TheFirstWithTheNewestStateGivesItsBitsToAll) {
    const float nan = std::numeric_limits<float>::signaling_NaN();
    const std::vector<std::vector<float>> newest{{1.5f, -0.0f, nan},
                                                 {std::numeric_limits<float>::denorm_min(), -3}};
    ThreadWorld(4).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        Survival survival;
        survival.enter(2);
        // Rank 0 is new; rank 1 is a step behind; 2 and 3 are alike.
        if (ranks.rank() == 1)
            survival.keep(
                std::make_unique<Held>(Progress{6, 0, 0, 0, 100, 0}, std::vector<std::vector<float>>(2)));
        if (ranks.rank() >= 2)
            survival.keep(
                std::make_unique<Held>(Progress{7, 2, 1, 1, static_cast<double>(ranks.rank()), 10}, newest));
        const auto source = survival.ask(*device, ranks);
        ASSERT_TRUE(source && *source);
        EXPECT_EQ((*source)->rank, 2);
        const Progress& progress = (*source)->progress;
        EXPECT_EQ(progress.step, 7);
        EXPECT_EQ(progress.skipped, 2);
        EXPECT_EQ(progress.skipped_in_epoch, 1);
        EXPECT_EQ(progress.bad_in_a_row, 1);
        // One's own sums, or the mean of those who have theirs, and twice that: the last world had 8 ranks.
        EXPECT_EQ(progress.loss, ranks.rank() >= 2 ? 2.0 * static_cast<double>(ranks.rank()) : 5);
        EXPECT_EQ(survival.has_remains(), ranks.rank() == 2);

        // All of the first vector; of the second, rank 3 holds the last number only.
        const std::int64_t first = ranks.rank() == 3 ? 1 : 0;
        const std::vector<Survival::Part> parts{{device->make(Type::f32, {3}), 0, 3},
                                                {device->make(Type::f32, {2 - first}), first, 2 - first}};
        const std::vector<std::int64_t> sizes{3, 2};
        ASSERT_TRUE(survival.give(**source, parts, sizes, *device, ranks));
        const auto bits = [](float number) { return std::bit_cast<std::uint32_t>(number); };
        for (std::size_t vector = 0; vector < parts.size(); ++vector) {
            const auto found = device->values_of<float>(parts[vector].tensor);
            for (std::size_t i = 0; i < found.size(); ++i)
                EXPECT_EQ(bits(found[i]),
                          bits(newest[vector][i + static_cast<std::size_t>(parts[vector].first)]));
        }
        const RecoveryReport report = survival.done(7, *source);
        EXPECT_EQ(report.from, 2);
        EXPECT_EQ(report.repeated, 0);
        EXPECT_EQ(survival.totals().recoveries, 2);  // this rank has missed the first, perhaps
        EXPECT_FALSE(survival.has_remains());
    });
}

TEST(Survival, CountsRepeatedStepsIfNoRankHasTheWholeState) {
    ThreadWorld(2).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        Survival survival;
        survival.enter(1);
        if (ranks.rank() == 1)
            survival.keep(std::make_unique<Held>(std::nullopt, std::vector<std::vector<float>>()));
        const auto source = survival.ask(*device, ranks);
        ASSERT_TRUE(source);
        EXPECT_FALSE(*source);
        const RecoveryReport report = survival.done(4, *source);
        EXPECT_EQ(report.from, std::nullopt);
        EXPECT_EQ(report.repeated, 5);
        EXPECT_EQ(survival.totals().repeated, 5);
    });
}

// ---- trainings

// Breaks off at this sum of gradients, and for good.
class BreaksOff final : public Communicator {
 public:
    BreaksOff(Communicator& inner, int after) : inner_(inner), left_(after) {}
    std::string_view name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (tensor.type() == Type::f32) --left_;
        if (left_ < 0) return fail(Fault::world, "a rank has died");
        return inner_.all_reduce(tensor, reduction);
    }
    Result<void> all_gather(const Tensor& tensor) override {
        return left_ < 0 ? fail(Fault::world, "a rank has died") : inner_.all_gather(tensor);
    }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        return left_ < 0 ? fail(Fault::world, "a rank has died") : inner_.broadcast(tensor, root);
    }

 private:
    Communicator& inner_;
    int left_;
};

struct Case {
    const char* model = "ffn";
    Dataset data = pattern_set();
    ModelShape shape = {};
    std::function<void(Settings&)> change = [](Settings&) {};
};

// The end of a training of three ranks, of which one dies in the first generation and another in the second.
void expect_survives(const Case& subject, bool from_memory = true) {
    const ModelInfo& info = *find_model(subject.model);
    const Scratch scratch;
    Settings settings = saved_settings(scratch.path());
    settings.checkpoints.every = 3;
    settings.batch = 6;
    settings.max_steps = 20;
    settings.epochs.reset();
    subject.change(settings);
    Settings quiet = settings;
    quiet.checkpoints.directory.clear();
    const Outcome undisturbed =
        *train_saved(3, quiet, {}, subject.data, subject.model, subject.shape)[0].outcome;

    struct Rank {
        std::unique_ptr<Device> device = open_cpu(1);
        std::unique_ptr<Model> model;
        Survival survival;
        Seen seen;
        // Of the last generation, which is needed until the next one has asked.
        std::unique_ptr<BreaksOff> communicator;
        Settings settings;
    };
    std::array<std::unique_ptr<Rank>, 3> ranks;
    std::array<std::uint64_t, 3> hashes{};
    std::vector<std::unique_ptr<BreaksOff>> past;
    std::mutex mutex;
    constexpr int kForever = 1 << 20;
    for (int generation = 0; generation < 3; ++generation) {
        // A new process in the place of the dead one.
        for (const int number : {0, 1, 2})
            if (generation == 0 || number == 2 - generation) {
                auto made = std::make_unique<Rank>();
                made->model = info.make(subject.shape);
                ranks[static_cast<std::size_t>(number)] = std::move(made);
            }
        ThreadWorld(3).run([&](Communicator& world) {
            (void)open_cpu(1);  // OpenMP counts this thread's threads
            Rank& mine = *ranks[static_cast<std::size_t>(world.rank())];
            mine.survival.enter(generation);
            mine.settings = settings;
            mine.settings.batch = settings.batch / 3;
            auto communicator =
                std::make_unique<BreaksOff>(world, generation == 2 ? kForever : 5 + 2 * generation);
            const auto outcome = train(info, *mine.model, subject.data, mine.settings, *mine.device,
                                       *communicator, mine.seen, &mine.survival);
            const std::lock_guard lock(mutex);
            past.push_back(std::move(communicator));
            if (generation < 2) {
                ASSERT_FALSE(outcome);
                EXPECT_EQ(outcome.error().message, "a rank has died");
                EXPECT_EQ(mine.survival.has_remains(), true);
                return;
            }
            ASSERT_TRUE(outcome) << outcome.error().message;
            hashes[static_cast<std::size_t>(world.rank())] = outcome->parameters_hash;
            EXPECT_EQ(outcome->recovered.recoveries, 2);
            EXPECT_EQ(outcome->recovered.repeated == 0, from_memory) << outcome->recovered.repeated;
            EXPECT_NEAR(outcome->last.test_loss, undisturbed.last.test_loss, 1e-12);
        });
    }
    for (const std::uint64_t hash : hashes) EXPECT_EQ(hash, undisturbed.parameters_hash) << subject.model;
}

TEST(SurvivingTraining, EndsWithTheBitsOfAnUndisturbedOne) {
    expect_survives({});
    expect_survives({.change = [](Settings& s) { s.clip = 0.01; }});
    expect_survives({.change = [](Settings& s) {
        s.accumulate = 2;
        s.optimizer = Optimization::sgd;
    }});
    expect_survives({.change = [](Settings& s) { s.precision = Precision::bf16; }});
}

// What a step has changed before it is made: the running statistics of batch normalisation.
TEST(SurvivingTraining, UndoesBufferChangesOfAnUnfinishedStep) {
    ModelShape shape;
    shape.image_size = 16;
    shape.features = 2;
    expect_survives({.model = "unet2d", .data = bright_pixels(40, 16), .shape = shape});
}

TEST(SurvivingTraining, GoesBackToACheckpointWhereAPartIsNowhereElse) {
    expect_survives({.change = [](Settings& s) { s.shard_optimizer = true; }}, false);
}

TEST(AccumulateIn, KeepsTheGlobalBatchOrNamesTheSizesThatWouldDo) {
    EXPECT_EQ(accumulate_in(8, 8, 1), 1);
    EXPECT_EQ(accumulate_in(4, 8, 1), 2);
    EXPECT_EQ(accumulate_in(6, 8, 3), 4);
    const auto refused = accumulate_in(6, 8, 1);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("these world sizes can: 1, 2, 4, 8"));
}

}  // namespace
}  // namespace dp::trainer
