// SPDX-License-Identifier: Apache-2.0
//
// --shard-optimizer: each rank holds its part of the optimizer's state and no more, and what is learnt is the
// same to the bit, whatever the training does with its gradients, and over checkpoints.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "saved_training.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAreArray;

struct NamedSettings {
    const char* name;
    Settings settings;
};

// 12 divides into worlds of 1 to 4.
std::vector<NamedSettings> kinds_of_training() {
    Settings plain;
    plain.batch = 60;
    plain.max_steps = 6;
    plain.weight_decay = 0.1;
    Settings sgd = plain, clipped = plain, accumulated = plain, narrow = plain;
    sgd.optimizer = Optimization::sgd;
    sgd.rate = {LrDecay::cosine, 0.05, 0, 0.1};
    clipped.clip = 0.05;  // nearly always smaller than the norm
    clipped.skip_bad_steps = true;
    accumulated.batch = 12;
    accumulated.accumulate = 5;
    accumulated.clip = 0.5;
    narrow.precision = Precision::bf16;
    return {
        {"adam", plain}, {"sgd", sgd}, {"clipped", clipped}, {"accumulated", accumulated}, {"bf16", narrow}};
}

TEST(ShardedOptimizer, LearnsTheSameToTheBit) {
    for (auto& [name, settings] : kinds_of_training()) {
        for (const std::int64_t world : {1, 2, 3, 4}) {
            const Outcome whole = outcome_of(train_saved(world, settings));
            Settings sharding = settings;
            sharding.shard_optimizer = true;
            const Outcome sharded = outcome_of(train_saved(world, sharding));
            ASSERT_EQ(sharded.parameters.size(), whole.parameters.size());
            EXPECT_EQ(std::memcmp(sharded.parameters.data(), whole.parameters.data(),
                                  whole.parameters.size() * sizeof(float)),
                      0)
                << name << ", " << world << " ranks";
            EXPECT_EQ(sharded.last.loss, whole.last.loss);
            EXPECT_EQ(sharded.last.test_loss, whole.last.test_loss);
        }
    }
}

// Else the test above would say nothing of it.
TEST(ShardedOptimizer, HasTheBorderOfWeightDecayWithinAPart) {
    const auto device = open_cpu(1);
    const auto model = find_model("ffn")->make({});
    model->place(*device, 1, 1);
    const ParameterSet& parameters = model->parameters();
    for (const std::int64_t world : {1, 2, 3, 4}) {
        const Shard last = shard_of(parameters.values().elements(), world - 1, world);
        EXPECT_GT(parameters.decayed(), last.first);
        EXPECT_LT(parameters.decayed(), last.first + last.count);
    }
}

// Some samples make the gradients infinite.
TEST(ShardedOptimizer, SkipsTheSameSteps) {
    Dataset data = make_linear_regression();
    const float infinite = std::numeric_limits<float>::infinity();
    for (const std::size_t sample : {0, 300, 600, 900})
        std::memcpy(data.train.targets.bytes.data() + sample * sizeof infinite, &infinite, sizeof infinite);
    Settings settings;
    settings.batch = 60;
    settings.epochs = 2;
    settings.skip_bad_steps = true;
    const Outcome whole = outcome_of(train_saved(3, settings, {}, data, "linear"));
    settings.shard_optimizer = true;
    const Outcome sharded = outcome_of(train_saved(3, settings, {}, data, "linear"));
    EXPECT_GT(whole.skipped, 0);
    EXPECT_EQ(sharded.skipped, whole.skipped);
    EXPECT_EQ(sharded.parameters_hash, whole.parameters_hash);
}

class Nobody final : public Observer {
 public:
    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_epoch(const EpochReport&, const Schedule&) override {}
};

TEST(ShardedOptimizer, HoldsItsPartOnly) {
    const ModelInfo& info = *find_model("ffn");
    const Dataset data = pattern_set();
    for (const Optimization kind : {Optimization::adam, Optimization::sgd}) {
        std::vector<std::int64_t> peaks[2];
        for (const bool sharded : {false, true}) {
            peaks[sharded].resize(3);
            ThreadWorld(3).run([&](Communicator& ranks) {
                Settings settings;
                settings.batch = 20;
                settings.optimizer = kind;
                settings.shard_optimizer = sharded;
                const auto device = open_cpu(1);
                const auto model = info.make({});
                Nobody nobody;
                ASSERT_TRUE(repeat_step(info, *model, data, settings, *device, ranks, 1, nobody));
                peaks[sharded][static_cast<std::size_t>(ranks.rank())] = device->memory().peak();
                const auto needs = estimate_memory({*info.make({}), settings, &data, 3});
                EXPECT_GE(needs.total(), device->memory().peak());
                EXPECT_LT(static_cast<double>(needs.total()),
                          1.1 * static_cast<double>(device->memory().peak()));
            });
        }
        const std::int64_t all = info.make({})->parameters().padded_count();
        for (std::int64_t rank = 0; rank < 3; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            EXPECT_EQ(peaks[0][at] - peaks[1][at],
                      4 * state_per_parameter(kind) * (all - shard_of(all, rank, 3).count));
        }
    }
}

// ---- over checkpoints

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

TEST(ShardedOptimizer, WritesTheSameCheckpoint) {
    for (const auto& [name, settings] : kinds_of_training()) {
        const Scratch whole_directory, directory;
        Settings saving = settings;
        saving.checkpoints.directory = whole_directory.path();
        outcome_of(train_saved(3, saving));
        saving.checkpoints.directory = directory.path();
        saving.shard_optimizer = true;
        outcome_of(train_saved(3, saving));
        EXPECT_THAT(files_of_checkpoint(directory), ElementsAreArray(files_of_checkpoint(whole_directory)))
            << name;
    }
}

// From each way to each way, and from one world to another.
TEST(ShardedOptimizer, GoesOnFromEitherKindOfTraining) {
    for (const Optimization kind : {Optimization::adam, Optimization::sgd}) {
        Settings settings;
        settings.batch = 60;
        settings.optimizer = kind;
        settings.rate.rate = kind == Optimization::adam ? 1e-3 : 0.05;
        settings.weight_decay = 0.1;
        for (const auto& [first, rest] : {std::pair{3, 3}, {2, 4}, {4, 1}, {1, 3}}) {
            std::vector<std::uint64_t> hashes;
            for (const bool before : {false, true}) {
                for (const bool after : {false, true}) {
                    const Scratch directory;
                    settings.checkpoints.directory = directory.path();
                    settings.max_steps = 5;
                    settings.shard_optimizer = before;
                    outcome_of(train_saved(first, settings));
                    settings.max_steps = 10;
                    settings.shard_optimizer = after;
                    const Outcome outcome = outcome_of(train_saved(rest, settings));
                    EXPECT_EQ(outcome.resumed, 5);
                    hashes.push_back(outcome.parameters_hash);
                }
            }
            const std::vector<std::uint64_t> same(4, hashes[0]);
            EXPECT_THAT(hashes, ElementsAreArray(same))
                << name_of(kind) << ", " << first << " ranks, then " << rest;
        }
    }
}

}  // namespace
}  // namespace dp::trainer
