// SPDX-License-Identifier: Apache-2.0
//
// --freeze: which parameters it means, that they keep their bits whatever the training does, and that the others learn as they
// would without it.
#include "trainer/commands/freezing.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "saved_training.hpp"
#include "small_models.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/training/gradient_norm.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

TEST(Freeze, MeansNamesAndWhatIsUnderThem) {
    const struct {
        const char* name;
        const char* pattern;
        bool is_meant;
    } cases[] = {
        {"wte", "wte", true},
        {"wte", "wpe", false},
        {"wte", "w?e", true},
        {"h.0.attn.c_attn.weight", "h.*.attn.*", true},
        {"h.0.attn.c_attn.weight", "h.*.attn", true},
        {"h.0.attn.c_attn.weight", "h.0", true},
        {"h.10.attn.c_attn.weight", "h.1", false},
        {"h.10.attn.c_attn.weight", "h.1?", true},
        {"h.10.attn.c_attn.bias", "*.bias", true},
        {"h.10.attn.c_attn.weight", "*.bias", false},
        {"h.0.mlp.c_fc.weight", "h.*.attn.*", false},
        {"h.0.ln_1.weight", "h.[0-5]", true},
        {"h.6.ln_1.weight", "h.[0-5]", false},
        {"wte", "[", false},
        {"wte", "", false},
    };
    for (const auto& c : cases)
        EXPECT_EQ(is_named_like(c.name, c.pattern), c.is_meant) << c.name << " " << c.pattern;
}

TEST(Freeze, ThatMeansNothingOrAllIsRefused) {
    const struct {
        const char* model;
        Words freeze;
        const char* line;  // nullptr: it is taken
    } cases[] = {
        {"gpt", {"wte", "wpe", "h.*.attn.*"}, nullptr},
        {"gpt", {"h"}, nullptr},
        {"gpt",
         {"wtee"},
         "--freeze: gpt has no parameter 'wtee'; do you mean wte?; `trainer info --model=gpt` lists them"},
        {"gpt", {"wte", "h.*.atn"}, "'h.*.atn'; do you mean h.*.attn?"},
        {"gpt", {"h.*.mlp.c_fx.weight"}, "do you mean h.*.mlp.c_fc.weight?"},
        {"gpt", {"transformer"}, "'transformer'; its names begin with h, ln_f, wpe and wte; "},
        {"ffn", {"ffn.3"}, "do you mean ffn.*?"},
        {"ffn",
         {"ffn", "logistic_regression"},
         "--freeze: 'ffn,logistic_regression' is all of ffn, and leaves nothing to train"},
        {"gpt", {"*"}, "'*' is all of gpt"},
    };
    for (const auto& c : cases) {
        ModelShape model = shape();
        model.freeze = c.freeze;
        const auto checked = check_freeze(*find_model(c.model), model);
        EXPECT_EQ(checked.has_value(), c.line == nullptr) << c.model << " " << c.freeze.front();
        if (checked || c.line == nullptr) continue;
        EXPECT_THAT(checked.error().message, HasSubstr(c.line));
        EXPECT_EQ(checked.error().fault, Fault::usage);
    }
}

// A stage that has nothing else is not all of the model.
TEST(Freeze, OfAStageIsToldOfTheWholeModel) {
    ModelShape stage = shape();
    stage.gpt.layout.stages = 2;
    stage.freeze = {"wte", "wpe", "h.0"};
    EXPECT_EQ(make_model(*find_model("gpt"), stage)->parameters().learned_count(), 0);
    EXPECT_TRUE(check_freeze(*find_model("gpt"), stage));
    stage.freeze = {"*"};
    EXPECT_FALSE(check_freeze(*find_model("gpt"), stage));
}

TEST(Freeze, WhatIsFrozenLiesBehindTheRestAndHasNoSumOfGradients) {
    const auto device = open_cpu(1);
    ParameterSet parameters;
    const Initial one = Initial::constant(1);
    const Parameter& a = parameters.add("a", {10, 10}, one);
    const Parameter& frozen = parameters.add("frozen", {20, 20}, one);
    const Parameter& bias = parameters.add("bias", {3}, one);
    const Parameter& b = parameters.add("b", {10, 10}, one);
    parameters.freeze([](const Parameter& each) { return each.name == "frozen"; });
    const std::int64_t learned = parameters.learned_count();
    parameters.place(*device, 1);
    EXPECT_EQ(a.first, 0);
    EXPECT_LT(b.first, parameters.decayed());
    EXPECT_EQ(bias.first, parameters.decayed());
    EXPECT_EQ(frozen.first, learned);
    EXPECT_EQ(parameters.gradients().elements(), learned);
    EXPECT_EQ(parameters.values().elements(), parameters.padded_count());
    EXPECT_NE(frozen.gradient.allocation(), parameters.gradients().allocation());
    const auto counted = counted_of(parameters);
    ASSERT_EQ(counted.size(), 1u);
    EXPECT_EQ(counted[0].count, learned) << "the norm that clips is that of what is learnt";
}

// The values of the parameters that are meant, or of the others, one behind the other.
std::vector<float> values_of(const ModelInfo& info, const ModelShape& shape, const std::vector<float>& all,
                             bool frozen) {
    const auto model = make_model(info, shape);
    std::vector<float> some;
    std::ptrdiff_t at = 0;
    for (const Parameter& one : model->parameters().all()) {
        const std::int64_t count = elements_of(one.shape);
        if (one.is_frozen == frozen) some.insert(some.end(), all.begin() + at, all.begin() + at + count);
        at += count;
    }
    return some;
}

std::vector<float> initial_values(const ModelInfo& info, const ModelShape& shape) {
    const auto device = open_cpu(1);
    const auto model = make_model(info, shape);
    model->place(*device, Settings{}.seed, 1);
    return model->parameters().download(*device);
}

bool are_equal(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Kind {
    const char* name;
    Settings settings;
};
std::vector<Kind> kinds_of_training() {
    Settings plain;
    plain.batch = 60;
    plain.weight_decay = 0.1;
    plain.max_steps = 1;
    Settings sgd = plain, sharded = plain, accumulated = plain, narrow = plain;
    sgd.optimizer = Optimization::sgd;
    sharded.shard_optimizer = true;
    accumulated.batch = 12;
    accumulated.accumulate = 5;
    narrow.precision = Precision::bf16;
    return {
        {"adam", plain}, {"sgd", sgd}, {"sharded", sharded}, {"accumulated", accumulated}, {"bf16", narrow}};
}

// A step from the same values has the same gradients, so what is not frozen takes the same step to the bit.
TEST(Freeze, LeavesTheFrozenAndMovesTheOthersAsWithoutIt) {
    const ModelInfo& info = *find_model("ffn");
    for (const Words& freeze :
         {Words{"ffn.1"}, Words{"ffn.2.weight"}, Words{"*.bias"}, Words{"logistic_regression.bias", "ffn"}}) {
        ModelShape model;
        model.freeze = freeze;
        const auto before = initial_values(info, model);
        for (auto& [name, settings] : kinds_of_training())
            for (const std::int64_t world : {1, 3}) {
                const Outcome all = outcome_of(train_saved(world, settings));
                const Outcome some =
                    outcome_of(train_saved(world, settings, {}, pattern_set(), "ffn", model));
                const std::string what = std::string(name) + ", " + freeze.front();
                EXPECT_TRUE(are_equal(values_of(info, model, some.parameters, true),
                                      values_of(info, model, before, true)))
                    << what;
                EXPECT_TRUE(are_equal(values_of(info, model, some.parameters, false),
                                      values_of(info, model, all.parameters, false)))
                    << what;
                EXPECT_FALSE(are_equal(values_of(info, model, some.parameters, false),
                                       values_of(info, model, before, false)))
                    << what << ": nothing is learnt";
            }
    }
}

TEST(Freeze, IsTheSameForEveryModel) {
    const struct {
        const char* model;
        Words freeze;
    } cases[] = {
        {"cnn", {"conv1", "fc2.bias"}}, {"unet2d", {"upconv*", "*.bias"}},
        {"gpt", {"wte", "h.0"}},        {"gpt", {"wte", "wpe", "h.0"}},  // layers without a backward pass
        {"gpt", {"w*", "h"}},           {"gpt", {"wpe", "*.ln_?", "h.1.mlp.c_fc.weight"}}};
    for (const auto& c : cases) {
        const ModelInfo& info = *find_model(c.model);
        ModelShape model = shape(), free = shape();
        model.freeze = c.freeze;
        ASSERT_TRUE(check_freeze(info, model))
            << c.model << ": " << check_freeze(info, model).error().message;
        Settings settings;
        settings.batch = 4;
        settings.max_steps = 1;
        const Dataset data = info.data == DataSet::segmentation ? bright_pixels(8, 32)
                             : info.data == DataSet::tokens     ? random_text(8, 16, 100)
                                                                : pattern_set();
        const auto before = initial_values(info, model);
        const Outcome all = outcome_of(train_saved(1, settings, {}, data, c.model, free));
        const Outcome some = outcome_of(train_saved(1, settings, {}, data, c.model, model));
        EXPECT_TRUE(
            are_equal(values_of(info, model, some.parameters, true), values_of(info, model, before, true)));
        EXPECT_FALSE(values_of(info, model, before, true).empty());
        EXPECT_TRUE(are_equal(values_of(info, model, some.parameters, false),
                              values_of(info, model, all.parameters, false)))
            << c.model << " " << c.freeze.front();
    }
}

// The checkpoint is of the whole model, and what goes on from it ends with the same bits.
TEST(Freeze, ResumesFromWhatHasNoStateOfTheFrozen) {
    ModelShape model;
    model.freeze = {"ffn.1"};
    for (const bool shards : {false, true}) {
        const Scratch whole, parted;
        Settings settings = saved_settings(whole.path());
        settings.shard_optimizer = shards;
        const Outcome expected = outcome_of(train_saved(2, settings, {}, pattern_set(), "ffn", model));
        settings.checkpoints.directory = parted.path();
        EXPECT_EQ(the_error(train_saved(2, settings, 20, pattern_set(), "ffn", model)).fault, Fault::stopped);
        const auto manifest = read_manifest(checkpoint_path(parted.path(), checkpoints_in(parted.path())[0]));
        ASSERT_TRUE(manifest);
        const auto placed = make_model(*find_model("ffn"), model);
        EXPECT_EQ(manifest->vectors[0].elements, placed->parameters().padded_count());
        EXPECT_EQ(manifest->vectors[1].elements, placed->parameters().learned_count());
        EXPECT_EQ(outcome_of(train_saved(2, settings, {}, pattern_set(), "ffn", model)).parameters_hash,
                  expected.parameters_hash);
    }
}

TEST(Freeze, MoreMayBeFrozenOnTheWayAndNotLess) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.epochs.reset();
    ModelShape model;
    const auto go_to = [&](std::int64_t steps) {
        settings.max_steps = steps;
        return train_saved(2, settings, {}, pattern_set(), "ffn", model);
    };
    const Outcome all = outcome_of(go_to(3));
    model.freeze = {"ffn.1"};
    const Outcome frozen = outcome_of(go_to(6));
    const ModelInfo& info = *find_model("ffn");
    EXPECT_EQ(frozen.resumed, 3);
    EXPECT_TRUE(are_equal(values_of(info, model, frozen.parameters, true),
                          values_of(info, model, all.parameters, true)));
    model.freeze = {"ffn.2"};
    EXPECT_THAT(
        the_error(go_to(9)).message,
        HasSubstr(
            "was made with ffn.1.weight frozen, so it has no state of the optimizer for it; give the same "
            "--freeze, or one that freezes more"));
    model.freeze = {"ffn.1", "ffn.2.bias"};
    EXPECT_EQ(outcome_of(go_to(9)).resumed, 6);
}

TEST(Freeze, SavesTheMemoryOfGradientsAndOptimizer) {
    const auto device = open_cpu(1);
    ModelShape model;
    const Settings settings;
    const auto all = make_model(*find_model("ffn"), model);
    model.freeze = {"ffn.1"};
    const auto some = make_model(*find_model("ffn"), model);
    const std::int64_t weight = 256 * 784, bias = 256, both = weight + bias;
    const auto before = estimate_memory({*all, settings, nullptr, 1}),
               after = estimate_memory({*some, settings, nullptr, 1});
    EXPECT_EQ(after.parameters, before.parameters);
    EXPECT_EQ(after.optimizer, before.optimizer - 2 * 4 * both);
    EXPECT_EQ(after.gradients, before.gradients) << "written, and not read";
    const std::int64_t held = device->memory().held();
    some->parameters().place(*device, 1);
    EXPECT_EQ(device->memory().held() - held, after.parameters + after.gradients);
}

}  // namespace
}  // namespace dp::trainer
