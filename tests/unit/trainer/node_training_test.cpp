// SPDX-License-Identifier: Apache-2.0
//
// Trainings in which the ranks of a node have one copy of the parameters and of the optimizer's state, and
// each updates a part: they learn what ranks with a copy each learn, whatever the training does with its
// gradients, over checkpoints, and however late one of them comes.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "node_world.hpp"
#include "saved_training.hpp"
#include "trainer/base/files.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAreArray;
using Nodes = std::vector<int>;

struct Subject {
    const char* model = "ffn";
    Dataset data = pattern_set();
    ModelShape shape = {};
};

// By ranks of these nodes, with a batch each.
std::vector<RankOf> train_each(const Nodes& nodes, const Settings& settings, const Subject& subject,
                               std::optional<int> late, bool in_order) {
    const ModelInfo& info = *find_model(subject.model);
    std::vector<RankOf> ranks(nodes.size());
    as_threads(nodes.size(), [&](auto& store, int rank) {
        RankOf& mine = ranks[static_cast<std::size_t>(rank)];
        const auto device = open_cpu(1);
        const auto shared = join_nodes(store, nodes, rank, *device);
        ASSERT_TRUE(shared) << shared.error().message;
        ASSERT_TRUE(in_order || shared->communicator->node_share()) << shared->why_not;
        device->set_deterministic(in_order);
        if (late == rank)
            mine.seen.at_phase = [](Phase) { std::this_thread::sleep_for(std::chrono::milliseconds(8)); };
        const auto model = make_model(info, subject.shape);
        mine.outcome = train(info, *model, subject.data, settings, *device, *shared->communicator, mine.seen);
    });
    return ranks;
}

// As train_saved(), by ranks of these nodes. `late`: a rank that sleeps now and then.
std::vector<RankOf> train_on(const Nodes& nodes, Settings settings, const Subject& subject = {},
                             std::optional<int> late = {}) {
    settings.batch /= static_cast<std::int64_t>(nodes.size());
    return train_each(nodes, settings, subject, late, false);
}

std::vector<RankOf> train_apart(std::size_t world, const Settings& settings, const Subject& subject = {}) {
    return train_saved(static_cast<std::int64_t>(world), settings, {}, subject.data, subject.model,
                       subject.shape);
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
    ASSERT_EQ(a.parameters.size(), b.parameters.size()) << what;
    ASSERT_FALSE(a.parameters.empty()) << what;
    EXPECT_EQ(std::memcmp(a.parameters.data(), b.parameters.data(), a.parameters.size() * sizeof(float)), 0)
        << what << ": differ by " << relative_difference(a.parameters, b.parameters);
    // What the world adds up itself, losses and running statistics, it adds up in its own order.
    EXPECT_NEAR(a.last.loss, b.last.loss, 1e-12 * b.last.loss) << what;
    EXPECT_NEAR(a.last.test_loss, b.last.test_loss, 1e-6 * b.last.test_loss) << what;
}

struct Kind {
    std::string name;
    Settings settings;
    Subject subject = {};
};

// 12 divides into worlds of 1 to 4.
std::vector<Kind> kinds_of_training() {
    Settings plain;
    plain.batch = 60;
    plain.max_steps = 6;
    plain.weight_decay = 0.1;
    Settings sgd = plain, clipped = plain, accumulated = plain, narrow = plain, sharded = plain,
             logged = plain;
    sgd.optimizer = Optimization::sgd;
    sgd.rate = {LrDecay::cosine, 0.05, 0, 0.1};
    clipped.clip = 0.05;  // nearly always smaller than the norm
    accumulated.batch = 12;
    accumulated.accumulate = 5;
    accumulated.clip = 0.5;
    narrow.precision = Precision::bf16;
    sharded.shard_optimizer = true;
    sharded.clip = 0.05;
    logged.log_every = 1;
    Settings narrow_sharded = narrow;
    narrow_sharded.shard_optimizer = true;
    Settings images = plain, text = plain;
    images.batch = text.batch = 12;
    images.optimizer = Optimization::sgd;  // what comes before a norm has no gradient, and Adam divides by it
    ModelShape small;
    small.image_size = 16;
    small.features = 8;
    small.gpt = {2, 48, 2, 16, 1000};
    ModelShape frozen;
    frozen.freeze = {"ffn.1", "ffn.2.bias"};
    ModelShape adapted = small;
    adapted.gpt.lora_rank = adapted.gpt.lora_alpha = 4;
    return {{"adam", plain},
            {"frozen", plain, {"ffn", pattern_set(), frozen}},
            {"sgd", sgd},
            {"clipped", clipped},
            {"accumulated", accumulated},
            {"bf16", narrow},
            {"sharded", sharded},
            {"bf16, sharded", narrow_sharded},
            {"logged", logged},
            {"batch norm", images, {"unet2d", bright_pixels(80, 16), small}},
            {"adapters", text, {"gpt", random_text(80, 16, 1000), adapted}},
            {"tied weights", text, {"gpt", random_text(80, 16, 1000), small}}};
}

TEST(NodeTraining, LearnsTheSameToTheBitAsWithACopyEach) {
    for (const Kind& kind : kinds_of_training()) {
        for (const Nodes& nodes : std::vector<Nodes>{{0, 0}, {0, 0, 0}, {0, 0, 0, 0}}) {
            const auto apart = train_apart(nodes.size(), kind.settings, kind.subject),
                       together = train_on(nodes, kind.settings, kind.subject);
            const std::string what = kind.name + ", ranks: " + std::to_string(nodes.size());
            expect_same_bits(outcome_of(together), outcome_of(apart), what);
            ASSERT_EQ(together[0].seen.logs.size(), apart[0].seen.logs.size()) << what;
            for (std::size_t i = 0; i < apart[0].seen.logs.size(); ++i)
                EXPECT_NEAR(together[1].seen.logs[i].gradient_norm, apart[0].seen.logs[i].gradient_norm,
                            1e-12 * apart[0].seen.logs[i].gradient_norm)
                    << what;
        }
    }
}

// The ranks of a node have one, and each moves a part of it.
TEST(NodeTraining, AveragesTheSameToTheBit) {
    Settings settings;
    settings.batch = 60;
    settings.max_steps = 5;
    settings.ema_decay = 0.9;
    std::vector<std::vector<float>> averages;
    for (const bool together : {false, true}) {
        const Scratch scratch;
        settings.checkpoints.directory = scratch.path();
        outcome_of(together ? train_on({0, 0, 0}, settings) : train_apart(3, settings));
        const auto path = checkpoint_path(scratch.path(), 5);
        const auto manifest = read_manifest(path);
        ASSERT_TRUE(manifest);
        const auto first = read_parameter(path, *manifest, 0, "ema");
        ASSERT_TRUE(first);
        averages.push_back(*first);
    }
    EXPECT_EQ(averages[0], averages[1]);
}

// Over nodes the sums are added up in another order; all ranks have the same bits.
TEST(NodeTraining, LearnsTheSameOnNodesOfAnySize) {
    for (const Kind& kind : kinds_of_training()) {
        for (const Nodes& nodes : std::vector<Nodes>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1}}) {
            const Outcome apart = outcome_of(train_apart(nodes.size(), kind.settings, kind.subject)),
                          together = outcome_of(train_on(nodes, kind.settings, kind.subject));
            const double most = kind.settings.precision == Precision::bf16 ? 1e-3 : 1e-5;
            EXPECT_LT(relative_difference(apart.parameters, together.parameters), most)
                << kind.name << ", " << ::testing::PrintToString(nodes);
        }
    }
}

// 12 micro-batches, however many ranks share them. (Batch norm looks at what all ranks have at once.)
TEST(NodeTraining, InOrderLearnsTheSameToTheBitInWorldsOfAnySize) {
    for (const Kind& kind : kinds_of_training()) {
        if (kind.name == "batch norm") continue;
        const auto shared_by = [&](const Nodes& nodes, std::optional<int> late = {}) {
            Settings settings = kind.settings;
            settings.batch = 4;
            settings.max_steps = 3;
            settings.accumulate = 12 / static_cast<std::int64_t>(nodes.size());
            return outcome_of(train_each(nodes, settings, kind.subject, late, true));
        };
        const Outcome one = shared_by({0});
        for (const Nodes& nodes : std::vector<Nodes>{{0, 0},
                                                     {0, 1},
                                                     {0, 0, 0},
                                                     {0, 1, 2},
                                                     {0, 0, 1, 1},
                                                     {0, 0, 0, 1},
                                                     {0, 1, 1},
                                                     {0, 0, 1, 1, 2, 2},
                                                     {0, 0, 0, 1, 1, 2}})
            expect_same_bits(shared_by(nodes), one, kind.name + ", " + ::testing::PrintToString(nodes));
        expect_same_bits(shared_by({0, 0, 1, 1}, 0), one, kind.name + ", rank 0 late");
    }
}

// What a rank reads and writes it may only when the others are ready.
TEST(NodeTraining, WaitsForRanksThatAreLate) {
    for (Kind kind : kinds_of_training()) {
        kind.settings.max_steps = 4;
        if (kind.name == "adam") kind.settings.log_every = 2;
        const Outcome expected = outcome_of(train_apart(3, kind.settings, kind.subject));
        for (const int late : {0, 1, 2})
            expect_same_bits(outcome_of(train_on({0, 0, 0}, kind.settings, kind.subject, late)), expected,
                             kind.name + ", late: " + std::to_string(late));
    }
}

// Some samples make the gradients infinite.
TEST(NodeTraining, SkipsTheSameSteps) {
    Dataset data = make_linear_regression();
    const float infinite = std::numeric_limits<float>::infinity();
    for (const std::size_t sample : {0, 300, 600, 900})
        std::memcpy(data.train.targets.bytes.data() + sample * sizeof infinite, &infinite, sizeof infinite);
    Settings settings;
    settings.batch = 60;
    settings.epochs = 2;
    settings.skip_bad_steps = true;
    const Subject line{"linear", data};
    const Outcome apart = outcome_of(train_apart(3, settings, line));
    EXPECT_GT(apart.skipped, 0);
    for (const std::optional<int> late : {std::optional<int>(), std::optional(0), std::optional(1)}) {
        const Outcome together = outcome_of(train_on({0, 0, 0}, settings, line, late));
        EXPECT_EQ(together.skipped, apart.skipped);
        EXPECT_EQ(together.parameters_hash, apart.parameters_hash);
    }
    EXPECT_EQ(outcome_of(train_on({0, 0, 1}, settings, line)).skipped, apart.skipped);
}

// ---- memory

TEST(NodeTraining, EachRankCountsItsShareAsTheEstimateSays) {
    const ModelInfo& info = *find_model("ffn");
    const Dataset data = pattern_set();
    for (const bool sharded : {false, true}) {
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            Settings settings;
            settings.batch = 20;
            settings.shard_optimizer = sharded;
            settings.precision = precision;
            const Nodes nodes{0, 0, 0, 1, 1};
            as_threads(nodes.size(), [&](auto& store, int rank) {
                const auto device = open_cpu(1);
                const auto shared = join_nodes(store, nodes, rank, *device);
                ASSERT_TRUE(shared && shared->communicator->node_share());
                const auto model = info.make({});
                Seen seen;
                device->memory().set_limit(std::int64_t{1} << 40);
                ASSERT_TRUE(
                    repeat_step(info, *model, data, settings, *device, *shared->communicator, 1, seen));
                const auto needs = estimate_memory({*info.make({}), settings, &data, 5, device.get(),
                                                    shared->communicator->node_share()->fewest});
                EXPECT_GE(needs.total(), device->memory().peak());
                EXPECT_LT(static_cast<double>(needs.total()),
                          1.25 * static_cast<double>(device->memory().peak()))
                    << "of the node with the fewest ranks";
                const auto alone = estimate_memory({*info.make({}), settings, &data, 5, device.get()});
                EXPECT_LT(device->memory().peak(), alone.total() - alone.parameters / 3);
            });
        }
    }
}

// ---- checkpoints

// The names and hashes of the files of the one checkpoint there.
std::vector<std::string> files_of_checkpoint(const Scratch& directory) {
    const auto steps = checkpoints_in(directory.path());
    EXPECT_EQ(steps.size(), 1u);
    std::vector<std::string> contents;
    const auto path = checkpoint_path(directory.path(), steps.at(0));
    for (const auto& name : names_in(path))
        contents.push_back(name + ": " + sha256(contents_of(path / name)));
    return contents;
}

TEST(NodeTraining, WritesTheSameCheckpoint) {
    for (const Kind& kind : kinds_of_training()) {
        const Scratch apart, together;
        Settings saving = kind.settings;
        saving.checkpoints.directory = apart.path();
        outcome_of(train_apart(3, saving, kind.subject));
        saving.checkpoints.directory = together.path();
        outcome_of(train_on({0, 0, 0}, saving, kind.subject, 1));
        EXPECT_THAT(files_of_checkpoint(together), ElementsAreArray(files_of_checkpoint(apart))) << kind.name;
    }
}

// With a copy each or with one, with a sharded optimizer or without, and from one world to another.
TEST(NodeTraining, GoesOnFromAnyTraining) {
    for (const auto& [precision, first, rest] : std::vector<std::tuple<Precision, std::size_t, std::size_t>>{
             {Precision::fp32, 3, 3}, {Precision::fp32, 2, 4}, {Precision::bf16, 4, 2}}) {
        Settings settings;
        settings.batch = 60;
        settings.precision = precision;
        settings.weight_decay = 0.1;
        std::vector<std::uint64_t> hashes;
        for (const bool together_before : {false, true}) {
            for (const bool together_after : {false, true}) {
                for (const bool sharded : {false, true}) {
                    const Scratch directory;
                    settings.checkpoints.directory = directory.path();
                    const auto go_on = [&](bool together, std::size_t ranks) {
                        return outcome_of(together ? train_on(Nodes(ranks, 0), settings, {}, 1)
                                                   : train_apart(ranks, settings));
                    };
                    settings.max_steps = 5;
                    settings.shard_optimizer = sharded;
                    go_on(together_before, first);
                    settings.max_steps = 8;
                    settings.shard_optimizer = together_after && !sharded;
                    const Outcome outcome = go_on(together_after, rest);
                    EXPECT_EQ(outcome.resumed, 5);
                    hashes.push_back(outcome.parameters_hash);
                }
            }
        }
        const std::vector<std::uint64_t> same(hashes.size(), hashes[0]);
        EXPECT_THAT(hashes, ElementsAreArray(same)) << first << " ranks, then " << rest;
    }
}

// ---- ranks that are processes

// Trains until another dies. -> an exit code.
int train_until_it_breaks(::gloo::rendezvous::Store& store, const Nodes& nodes, int rank,
                          const std::string& sign) {
    const auto device = open_cpu(1);
    const auto shared = join_nodes(store, nodes, rank, *device);
    if (!shared || !shared->communicator->node_share()) return 10;
    Settings settings;
    settings.batch = 10;
    settings.epochs = 100000;
    settings.clip = 0.1;
    Seen seen;
    seen.at_step = [&](std::int64_t step) {
        seen.phases.clear();
        if (step == 3 && rank == 0) std::ofstream(sign) << "training";
    };
    const ModelInfo& info = *find_model("ffn");
    const auto model = info.make({});
    const auto done = train(info, *model, pattern_set(), settings, *device, *shared->communicator, seen);
    if (done) return 11;
    return done.error().message.find("another rank has died") != std::string::npos ? 42 : 12;
}

TEST(NodeTraining, EndsForAllWhenOneIsKilledAtAnyInstant) {
    const Nodes nodes{0, 0, 0, 1, 1};
    for (int attempt = 0; attempt < 6; ++attempt) {
        const std::size_t victim = static_cast<std::size_t>(attempt) % nodes.size();
        const Scratch scratch, signs;
        const std::string sign = (signs / "sign").string();
        const auto ranks = start_processes(nodes.size(), scratch.path().string(), [&](auto& store, int rank) {
            return train_until_it_breaks(store, nodes, rank, sign);
        });
        for (int i = 0; i < 3000 && !std::filesystem::exists(sign); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_TRUE(std::filesystem::exists(sign));
        std::this_thread::sleep_for(std::chrono::microseconds(1700 * attempt));
        kill(ranks[victim], SIGKILL);
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
            EXPECT_EQ(code_of(ranks[rank]), rank == victim ? -SIGKILL : 42) << rank << " without " << victim;
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    }
}

}  // namespace
}  // namespace dp::trainer
