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
#include "trainer/checkpoint/shard.hpp"
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

TEST(StepMarks, TellOfOneRanksPartAlone) {
    const auto device = open_cpu(1);
    const auto memory = std::make_shared<std::array<std::int64_t, 3>>();
    device->set_shared_memory({{}, [&](std::size_t) { return std::shared_ptr<void>(memory); }, 3});
    std::deque<StepMarks> marks;
    for (std::int64_t index = 0; index < 3; ++index) marks.emplace_back(*device, OfNode(index));
    EXPECT_EQ(marks[0].of_this_rank(true), std::nullopt);
    marks[0].end(7);
    EXPECT_EQ(marks[0].of_this_rank(true), 7);
    marks[1].end(8);
    marks[2].begin();  // and died
    EXPECT_EQ(marks[0].of_this_rank(true), 8);
    EXPECT_EQ(marks[0].of_this_rank(false), 7);
    EXPECT_EQ(marks[1].of_this_rank(true), 8);
    EXPECT_EQ(marks[2].of_this_rank(true), std::nullopt);
    marks[1].end(9);
    EXPECT_EQ(marks[0].of_this_rank(true), 7) << "no rank is two steps ahead of a living one";
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

TEST(NewestWhole, IsTheNewestStepOfWhichAllPartsAreLeft) {
    using Pieces = std::vector<std::pair<std::int64_t, std::size_t>>;  // rank and index of each
    const Shard all{0, 9}, a{0, 3}, b{3, 3}, c{6, 3}, none{0, 0};
    const struct {
        const char* what;
        std::vector<Holding> holdings;
        std::int64_t step;
        Pieces pieces;  // none: nothing is whole
    } cases[] = {
        {"nobody has any", {}, 0, {}},
        {"one has all", {{1, 7, {all, none}}}, 7, {{1, 0}}},
        {"the lower of two", {{1, 7, {all}}, {2, 7, {all}}}, 7, {{1, 0}}},
        {"the newer of two", {{1, 7, {all}}, {2, 8, {all}}}, 8, {{2, 0}}},
        {"each its own", {{0, 7, {a, c}}, {1, 7, {b, a}}, {2, 7, {c, b}}}, 7, {{0, 0}, {1, 0}, {0, 1}}},
        {"rank 1 is new: its part is a copy", {{0, 7, {a, c}}, {2, 7, {c, b}}}, 7, {{0, 0}, {2, 1}, {0, 1}}},
        {"a part and its copy are gone", {{1, 7, {b, a}}}, 0, {}},
        {"one is ahead, and not all of it",
         {{0, 7, {a, c}}, {1, 8, {b, a}}, {2, 7, {c, b}}},
         7,
         {{0, 0}, {2, 1}, {0, 1}}},
        {"the newest in parts, an older one whole", {{0, 8, {a, none}}, {1, 6, {all}}}, 6, {{1, 0}}},
        {"parts of nothing", {{0, 7, {none, all}}, {1, 7, {none, none}}}, 7, {{0, 1}}},
    };
    for (const auto& one : cases) {
        const auto whole = newest_whole(one.holdings, 9);
        Pieces found;
        for (const Piece& piece : whole.value_or(Whole{}).pieces) found.emplace_back(piece.rank, piece.index);
        EXPECT_EQ(found, one.pieces) << one.what;
        EXPECT_EQ(whole ? whole->step : 0, one.step) << one.what;
    }
}

TEST(LetFollow, TakesARankWhoseStepOthersCanTakeToo) {
    const Shard a{0, 3}, b{3, 3}, c{6, 3};
    const std::vector<Holding> apart{{0, 8, {a, c}, true}, {1, 7, {b, a}, true}};
    struct Case {
        const char* what;
        std::vector<Holding> holdings;
        std::optional<std::int64_t> leader;
    };
    auto cannot = apart, cannot_give = apart, far = apart, whole = apart;
    cannot[1].can_follow = false;
    cannot_give[0].can_follow = false;
    far[1].step = 6;
    whole.push_back({2, 8, {b}, true});
    for (const auto& [what, holdings, leader] :
         std::vector<Case>{{"nobody is left", {}, {}},
                           {"one is a step ahead, with some parts", apart, 0},
                           {"one that cannot follow", cannot, {}},
                           {"one that cannot give", cannot_give, {}},
                           {"two steps behind", far, {}},
                           {"whole without", whole, {}},
                           {"not whole with", {apart[0], {2, 7, {a, c}, true}}, {}}}) {
        auto after = holdings;
        EXPECT_EQ(let_follow(after, 9), leader) << what;
        const auto found = newest_whole(after, 9);
        if (leader) {
            ASSERT_TRUE(found) << what;
            EXPECT_EQ(found->step, 8) << what;
        }
    }
}

// All of the state, or, as ranks with a sharded optimizer, parts of it.
struct Held final : Remains {
    std::optional<Progress> held;
    std::vector<std::vector<float>> numbers;  // vectors
    std::vector<Shard> held_parts;
    Held(std::optional<Progress> progress, std::vector<std::vector<float>> state,
         std::vector<Shard> parts = {})
        : held(progress), numbers(std::move(state)), held_parts(std::move(parts)) {
        if (held_parts.empty()) held_parts.push_back({0, 3});
    }
    std::optional<Progress> progress() override { return held; }
    std::int64_t world() const override { return 8; }
    std::int64_t reached() const override { return held ? held->step : 9; }
    std::vector<Shard> parts() const override { return held_parts; }
    std::vector<std::vector<float>> state(std::size_t part) override {
        const auto [first, count] = held_parts[part];
        std::vector<std::vector<float>> vectors;
        for (const auto& vector : numbers)
            vectors.emplace_back(vector.begin() + first, vector.begin() + first + count);
        return vectors;
    }
    std::vector<float> buffers() override { return {4, 5}; }
    bool has_to_complete() override { return false; }
    bool can_follow() override { return false; }
    std::vector<float> sums() override { return {}; }
    void follow(const std::vector<float>&) override {}
};

void expect_given(const std::vector<std::vector<Survival::Part>>& wanted,
                  const std::vector<std::vector<float>>& vectors, Device& device) {
    const auto bits = [](float number) { return std::bit_cast<std::uint32_t>(number); };
    for (std::size_t vector = 0; vector < wanted.size(); ++vector)
        for (const Survival::Part& part : wanted[vector]) {
            const auto found = device.values_of<float>(part.tensor);
            for (std::size_t i = 0; i < found.size(); ++i)
                EXPECT_EQ(bits(found[i]), bits(vectors[vector][i + static_cast<std::size_t>(part.first)]));
        }
}

TEST(Survival, TheFirstWithTheNewestStateGivesItsBitsToAll) {
    const float nan = std::numeric_limits<float>::signaling_NaN();
    const std::vector<std::vector<float>> newest{{1.5f, -0.0f, nan},
                                                 {std::numeric_limits<float>::denorm_min(), -3, 2}};
    ThreadWorld(4).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        Survival survival;
        survival.enter(2);
        // Rank 0 is new; rank 1 is a step behind; 2 and 3 are alike.
        if (ranks.rank() == 1) survival.keep(std::make_unique<Held>(Progress{6, 0, 0, 0, 100, 0}, newest));
        if (ranks.rank() >= 2)
            survival.keep(
                std::make_unique<Held>(Progress{7, 2, 1, 1, static_cast<double>(ranks.rank()), 10}, newest));
        const auto source = survival.ask(3, *device, ranks);
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

        // All of the first vector; of the second, rank 3 wants the last two only.
        const std::int64_t first = ranks.rank() == 3 ? 1 : 0;
        const Tensor buffers = device->make(Type::f32, {2});
        const std::vector<std::vector<Survival::Part>> wanted{
            {{device->make(Type::f32, {3}), 0, 3}},
            {{device->make(Type::f32, {3 - first}), first, 3 - first}}};
        ASSERT_TRUE(survival.give(**source, wanted, {buffers}, *device, ranks));
        expect_given(wanted, newest, *device);
        EXPECT_THAT(device->values_of<float>(buffers), ElementsAre(4, 5));
        const RecoveryReport report = survival.done(7, *source);
        EXPECT_THAT(report.from, ElementsAre(2));
        EXPECT_EQ(report.repeated, 0);
        EXPECT_EQ(survival.totals().recoveries, 2);  // this rank has missed the first, perhaps
        EXPECT_FALSE(survival.has_remains());
    });
}

// Of three ranks, each with its own part and a copy of the part before, one is new. The first try to give the parts fails.
TEST(Survival, EachPartIsGivenByARankThatHasIt) {
    const std::vector<std::vector<float>> state{{0, 1, 2, 3, 4, 5}, {10, 11, 12, 13, 14, 15}};
    ThreadWorld(3).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        Survival survival;
        survival.enter(1);
        const Shard mine = shard_of(6, ranks.rank(), 3), theirs = shard_of(6, ranks.peer(), 3);
        if (ranks.rank() != 1)
            survival.keep(
                std::make_unique<Held>(Progress{7, 0, 0, 0, 0, 0}, state, std::vector{mine, theirs}));
        for (const int life : {0, 1}) {
            const auto source = survival.ask(6, *device, ranks);
            ASSERT_TRUE(source && *source);
            EXPECT_EQ((*source)->rank, 0);
            EXPECT_EQ(survival.has_remains(), ranks.rank() != 1);
            if (life == 0) continue;  // nobody gives anything: the next generation asks again
            const std::vector<std::vector<Survival::Part>> wanted{
                {{device->make(Type::f32, {6}), 0, 6}},
                {{device->make(Type::f32, {2}), mine.first, 2},
                 {device->make(Type::f32, {2}), theirs.first, 2}}};
            ASSERT_TRUE(survival.give(**source, wanted, {}, *device, ranks));
            expect_given(wanted, state, *device);
            EXPECT_THAT(survival.done(7, *source).from, ElementsAre(0, 2, 0));
        }
    });
}

TEST(Survival, CountsRepeatedStepsIfNoRankHasTheWholeState) {
    ThreadWorld(2).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        Survival survival;
        survival.enter(1);
        if (ranks.rank() == 1)
            survival.keep(std::make_unique<Held>(std::nullopt, std::vector<std::vector<float>>()));
        const auto source = survival.ask(3, *device, ranks);
        ASSERT_TRUE(source);
        EXPECT_FALSE(*source);
        const RecoveryReport report = survival.done(4, *source);
        EXPECT_TRUE(report.from.empty());
        EXPECT_EQ(report.repeated, 5);
        EXPECT_EQ(survival.totals().repeated, 5);
    });
}

// ---- trainings

// Breaks off for good at this sum of gradients: before it, ahead of the others once it is there, or behind, failing in it.
enum class Break { before, ahead, behind };
class BreaksOff final : public Communicator {
 public:
    BreaksOff(Communicator& inner, int after, Break how = Break::before)
        : inner_(inner), left_(after), how_(how) {}
    std::string_view name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (tensor.type() == Type::f32) --left_;
        if (left_ < (how_ == Break::before ? 0 : -1)) return fail(Fault::world, "a rank has died");
        DP_TRY(inner_.all_reduce(tensor, reduction));
        return left_ < 0 && how_ == Break::behind ? fail(Fault::world, "a rank has died") : Result<void>();
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
    Break how_;
};

struct Case {
    const char* model = "ffn";
    Dataset data = pattern_set();
    ModelShape shape = {};
    std::function<void(Settings&)> change = [](Settings&) {};
    std::array<Break, 3> breaks = {};  // of the first generation, by rank
};

// In the newest checkpoint: the average of the parameters, one behind the other.
std::vector<float> average_in(const std::filesystem::path& directory) {
    const auto path = checkpoint_path(directory, checkpoints_in(directory).front());
    const auto manifest = read_manifest(path);
    EXPECT_TRUE(manifest);
    std::vector<float> all;
    for (std::size_t i = 0; i < manifest->training.parameters.size(); ++i) {
        const auto some = read_parameter(path, *manifest, i, "ema");
        EXPECT_TRUE(some);
        all.insert(all.end(), some->begin(), some->end());
    }
    return all;
}

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
    const Scratch quiet_scratch;
    quiet.checkpoints.directory = quiet_scratch.path();
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
                made->model = make_model(info, subject.shape);
                ranks[static_cast<std::size_t>(number)] = std::move(made);
            }
        ThreadWorld(3).run([&](Communicator& world) {
            (void)open_cpu(1);  // OpenMP counts this thread's threads
            Rank& mine = *ranks[static_cast<std::size_t>(world.rank())];
            mine.survival.enter(generation);
            mine.settings = settings;
            mine.settings.batch = settings.batch / 3;
            auto communicator = std::make_unique<BreaksOff>(
                world, generation == 2 ? kForever : 5 + 2 * generation,
                generation == 0 ? subject.breaks[static_cast<std::size_t>(world.rank())] : Break::before);
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
    if (settings.ema_decay) {
        EXPECT_EQ(average_in(scratch.path()), average_in(quiet_scratch.path()));
    }
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

TEST(SurvivingTraining, KeepsTheAverageOfTheParameters) {
    expect_survives({.change = [](Settings& s) { s.ema_decay = 0.9; }});
    expect_survives({.change = [](Settings& s) {
        s.ema_decay = 0.9;
        s.shard_optimizer = true;
        s.peer_copy = 1;
    }});
}

// Who takes a dead one's place gets what is frozen, too.
TEST(SurvivingTraining, KeepsWhatIsFrozen) {
    ModelShape shape;
    shape.freeze = {"ffn.1", "ffn.2.bias"};
    expect_survives({.shape = shape});
    expect_survives({.shape = shape, .change = [](Settings& s) { s.precision = Precision::bf16; }});
    expect_survives({.shape = shape, .change = [](Settings& s) {
                         s.shard_optimizer = true;
                         s.peer_copy = 1;
                     }});
    ModelShape adapted;
    adapted.gpt = {2, 48, 2, 16, 100};
    adapted.gpt.lora_rank = adapted.gpt.lora_alpha = 4;
    expect_survives({.model = "gpt", .data = random_text(40, 16, 100), .shape = adapted});
    shape.image_size = 16;
    shape.features = 2;
    shape.freeze = {"upconv*"};
    expect_survives({.model = "unet2d", .data = bright_pixels(40, 16), .shape = shape});
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

TEST(SurvivingTraining, TakesPartsOfAShardedOptimizerFromTheirCopies) {
    const auto sharded = [](Settings& s) {
        s.shard_optimizer = true;
        s.peer_copy = 1;
    };
    expect_survives({.change = sharded});
    expect_survives({.change = [&](Settings& s) {
        sharded(s);
        s.clip = 0.01;
        s.weight_decay = 0.1;
    }});
    expect_survives({.change = [&](Settings& s) {
        sharded(s);
        s.accumulate = 2;
        s.optimizer = Optimization::sgd;
    }});
    expect_survives({.change = [&](Settings& s) {
        sharded(s);
        s.precision = Precision::bf16;
    }});
    // Rank 1 has died, and one of the others has taken a step that the other one has not.
    using enum Break;
    for (const std::array<Break, 3> breaks : {std::array{ahead, ahead, behind}, {behind, ahead, ahead}}) {
        expect_survives({.change = sharded, .breaks = breaks});
        expect_survives({.change =
                             [&](Settings& s) {
                                 sharded(s);
                                 s.accumulate = 2;
                             },
                         .breaks = breaks});
    }
}

TEST(AccumulateIn, KeepsTheGlobalBatchOrNamesTheSizesThatWouldDo) {
    EXPECT_EQ(accumulate_in(8, 8, 1), 1);
    EXPECT_EQ(accumulate_in(4, 8, 1), 2);
    EXPECT_EQ(accumulate_in(6, 8, 3), 4);
    EXPECT_EQ(accumulate_in(4, 8, 2, 2), 4);
    EXPECT_FALSE(accumulate_in(4, 6, 2, 2)) << "three, which is no multiple of two";
    const auto refused = accumulate_in(6, 8, 1);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("these world sizes can: 1, 2, 4, 8"));
}

}  // namespace
}  // namespace dp::trainer
