// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's manifest: written and read back, damaged in every way, and compared with a run.
#include "trainer/checkpoint/manifest.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

Manifest manifest() {
    Manifest one;
    one.training = {"ffn",
                    {{"a", {3, 4}, 0}, {"b", {5}, 64}},
                    {{"mean", {3}, 0}, {"variance", {4}, 3}},
                    "adam",
                    18446744073709551615u,
                    1000,
                    "abc",
                    64,
                    {{"num_layers", 6}}};
    one.precision = "bf16";
    one.stopped_by = "SIGTERM";
    one.samples_at_once = 8;
    one.data_source = "some \"data\" in Köln";
    one.progress = {31, 4, 2, 1, 0, 0, BestTest{1.0 / 3, 20, 2, 30}};
    one.vectors = {{"values", 128}, {"m", 128}, {"buffers", 7}};
    one.shards = {{"01", 0.1, 3}, {"02", 1e-300, 0}};
    return one;
}

TEST(Manifest, ComesBackAsItWasWritten) {
    const Manifest there = manifest();
    const auto back = manifest_of(text_of(there));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->training.model, "ffn");
    ASSERT_EQ(back->training.parameters.size(), 2u);
    EXPECT_EQ(back->training.parameters[0].shape, (Shape{3, 4}));
    EXPECT_EQ(back->training.parameters[1].name, "b");
    EXPECT_EQ(back->training.parameters[1].first, 64);
    ASSERT_EQ(back->training.buffers.size(), 2u);
    EXPECT_EQ(back->training.buffers[1].name, "variance");
    EXPECT_EQ(back->training.buffers[1].first, 3);
    EXPECT_EQ(back->training.optimizer, "adam");
    EXPECT_EQ(back->training.seed, 18446744073709551615u);
    EXPECT_EQ(back->training.samples, 1000);
    EXPECT_EQ(back->training.data_fingerprint, "abc");
    EXPECT_EQ(back->training.global_batch, 64);
    EXPECT_EQ(back->training.shape, there.training.shape);
    EXPECT_EQ(back->data_source, there.data_source);
    EXPECT_EQ(back->precision, "bf16");
    EXPECT_EQ(back->stopped_by, "SIGTERM");
    EXPECT_EQ(back->samples_at_once, 8);
    EXPECT_EQ(back->progress.step, 31);
    EXPECT_EQ(back->progress.skipped, 4);
    EXPECT_EQ(back->progress.skipped_in_epoch, 2);
    EXPECT_EQ(back->progress.bad_in_a_row, 1);
    ASSERT_TRUE(back->progress.best_test);
    EXPECT_EQ(back->progress.best_test->loss, 1.0 / 3);
    EXPECT_EQ(back->progress.best_test->step, 20);
    EXPECT_EQ(back->progress.best_test->worse, 2);
    EXPECT_EQ(back->progress.best_test->last_step, 30);
    ASSERT_EQ(back->vectors.size(), 3u);
    EXPECT_EQ(back->vectors[2].name, "buffers");
    EXPECT_EQ(back->vectors[2].elements, 7);
    ASSERT_EQ(back->world(), 2);
    EXPECT_EQ(back->shards[0].loss, 0.1);
    EXPECT_EQ(back->shards[1].loss, 1e-300);
    EXPECT_EQ(back->shards[0].correct, 3);
    EXPECT_EQ(back->shards[1].sha256, "02");
}

TEST(Manifest, OfAnOlderTrainerIsOfFp32) {
    auto json = nlohmann::json::parse(text_of(manifest()));
    json.erase("precision");
    json.erase("stopped_by");
    json.erase("samples_at_once");
    const auto back = manifest_of(json.dump());
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->precision, "fp32");
    EXPECT_EQ(back->stopped_by, "");
    EXPECT_EQ(back->samples_at_once, 0);
}

TEST(Manifest, OfATrainingThatNoSignalStoppedNamesNone) {
    Manifest one = manifest();
    EXPECT_EQ(nlohmann::json::parse(text_of(one))["stopped_by"], "SIGTERM");
    one.stopped_by.clear();
    EXPECT_FALSE(nlohmann::json::parse(text_of(one)).contains("stopped_by"));
}

// 15 steps an epoch.
TEST(Manifest, SaysForPeopleWhereInTheEpochItIs) {
    const auto json = nlohmann::json::parse(text_of(manifest()));
    EXPECT_EQ(json["epoch"], 3);
    EXPECT_EQ(json["samples_into_epoch"], 64);
    Manifest whole = manifest();
    whole.progress.step = 30;
    EXPECT_EQ(nlohmann::json::parse(text_of(whole))["epoch"], 2);
    EXPECT_EQ(nlohmann::json::parse(text_of(whole))["samples_into_epoch"], 15 * 64);
}

TEST(Manifest, ThatIsDamagedSaysWhere) {
    struct Case {
        const char* pointer;  // what is replaced, or removed where the value is null
        nlohmann::json value;
        const char* line;
    };
    const Case cases[] = {
        {"/format", "other", "is not a manifest of slurm-dp's trainer"},
        {"/version", 3,
         "has version 3 of the format, and this trainer reads versions 1 to 2; take the trainer that wrote "
         "it, or "
         "a newer one"},
        {"/version", 0, "or an older one"},
        {"/version", "1", "is damaged"},
        {"/step", nullptr, "is damaged"},
        {"/step", -1, "step is -1"},
        {"/step", 1e300, "step is 1e+300"},
        {"/samples", "many", "is damaged"},
        {"/seed", nullptr, "is damaged"},
        {"/model", 7, "is damaged"},
        {"/world_size", 3, "world_size is 3, and there are 2 shards"},
        {"/shards", nlohmann::json::array(), "there are 0 shards"},
        {"/shards/0/epoch_loss", "x", "is damaged"},
        {"/shards/1/sha256", nullptr, "is damaged"},
        {"/vectors/0/elements", -5, "elements is -5"},
        {"/vectors/0/elements", 4'000'000'000'000'000'000, "elements is 4000000000000000000"},
        {"/vectors/0/name", "others", "a is not within the values"},
        {"/parameters/1/first", 124, "b is not within the values"},
        {"/parameters/1/first", -1, "first is -1"},
        {"/parameters/0/shape", nlohmann::json{1 << 30, 1 << 30, 1 << 30}, "a is not within the values"},
        {"/parameters/0/shape", nlohmann::json{-3, 4}, "a is not within the values"},
        {"/parameters/0/shape", "3x4", "is damaged"},
        {"/buffers/1/first", 4, "variance is not within the buffers"},
        {"/buffers", nullptr, "is damaged"},
        {"/epoch", 2, "epoch is 2, and step 31 is in epoch 3"},
        {"/samples_into_epoch", 65, "samples_into_epoch is 65, and step 31 is 64 into epoch 3"},
        {"/samples_into_epoch", nullptr, "is damaged"},
        {"/global_batch_size", 0, "global_batch_size is 0"},
        {"/global_batch_size", 1001, "global_batch_size is 1001"},
        {"/step", 0, "step is 0"},
        {"/skipped_steps", 32, "skipped_steps is 32"},
        {"/skipped_in_epoch", 5, "skipped_in_epoch is 5"},
        {"/bad_in_a_row", 5, "bad_in_a_row is 5"},
        {"/best_test/last_step", 32, "last_step is 32"},
        {"/best_test/step", 31, "step is 31"},
        {"/best_test/step", 0, "step is 0"},
        {"/best_test/tests_since", 11, "tests_since is 11"},
        {"/best_test/loss", nullptr, "is damaged"},
    };
    for (const auto& c : cases) {
        auto json = nlohmann::json::parse(text_of(manifest()));
        const nlohmann::json::json_pointer pointer(c.pointer);
        if (c.value.is_null())
            json.at(pointer.parent_pointer()).erase(pointer.back());
        else
            json.at(pointer) = c.value;
        const auto back = manifest_of(json.dump());
        ASSERT_FALSE(back) << c.pointer;
        const std::string_view line = c.line;
        const bool is_damage = line.find("trainer") == line.npos && line != "or an older one";
        EXPECT_EQ(back.error().fault, is_damage ? Fault::checkpoint : Fault::usage) << c.pointer;
        EXPECT_THAT(back.error().message, HasSubstr(c.line)) << c.pointer;
        EXPECT_EQ(back.error().message.find('\n'), std::string::npos);
    }
    const std::string text = text_of(manifest());
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, text.size() / 2, text.size() - 3}) {
        const auto back = manifest_of(std::string_view(text).substr(0, length));
        ASSERT_FALSE(back) << length;
        EXPECT_THAT(back.error().message, HasSubstr("is damaged: "));
    }
}

Continuation same() {
    return {manifest().training, {"values", "m"}, 100, 2, 32, 1};
}

TEST(Fits, TheSameTrainingDoes) {
    EXPECT_TRUE(check_fits(manifest(), same()));
    Continuation at_its_end = same();
    at_its_end.total_steps = 31;
    EXPECT_TRUE(check_fits(manifest(), at_its_end));
}

TEST(Fits, AParameterMayLieElsewhere) {
    Continuation now = same();
    now.training.parameters[1].first = 12;
    EXPECT_TRUE(check_fits(manifest(), now));
}

TEST(Fits, AnotherTrainingDoesNotAndSaysWhy) {
    struct Case {
        void (*change)(Continuation&);
        const char* line;
    };
    const Case cases[] = {
        {[](Continuation& c) { c.training.model = "cnn"; }, "is of the model ffn; give --model=ffn"},
        {[](Continuation& c) {
             c.training.parameters[0].shape = {4, 3};
         },
         "a (3 x 4) where this one has a (4 x 3)"},
        {[](Continuation& c) { c.training.parameters[0].name = "z"; },
         "a (3 x 4) where this one has z (3 x 4)"},
        {[](Continuation& c) { c.training.parameters.pop_back(); }, "b (5) where this one has nothing"},
        {[](Continuation& c) {
             c.training.parameters.push_back({"c", {2}, 0});
         },
         "nothing where this one has c (2)"},
        {[](Continuation& c) { c.training.buffers[1].shape = {5}; },
         "variance (4) where this one has variance (5)"},
        {[](Continuation& c) { c.training.shape["num_layers"] = 7; },
         "is of ffn with num_layers 6; give --num-layers=6"},
        {[](Continuation& c) { c.training.shape.clear(); }, "give --num-layers=6"},
        {[](Continuation& c) { c.training.shape["document_begins"] = 256; },
         "was trained without --reset-attention-mask; leave it out, or begin with its weights in another "
         "directory"},
        {[](Continuation& c) { c.training.optimizer = "sgd"; }, "was made with adam; give --optimizer=adam"},
        {[](Continuation& c) { c.training.seed = 5; },
         "was made with the seed 18446744073709551615; give --seed="},
        {[](Continuation& c) { c.training.samples = 999; },
         "other data: 1000 training samples from some \"data\""},
        {[](Continuation& c) { c.training.data_fingerprint = "abd"; }, "other data"},
        {[](Continuation& c) { c.total_steps = 30; }, "is of step 31, and this run ends at step 30"},
        {[](Continuation& c) { c.vectors.push_back("v"); }, "lacks v"},
    };
    for (const auto& c : cases) {
        Continuation now = same();
        c.change(now);
        const auto fits = check_fits(manifest(), now);
        ASSERT_FALSE(fits) << c.line;
        EXPECT_EQ(fits.error().fault, Fault::usage);
        EXPECT_THAT(fits.error().message, HasSubstr(c.line));
    }
}

TEST(Fits, NorDoesOneWithoutItsDocuments) {
    Manifest then = manifest();
    then.training.shape["document_begins"] = 256;
    Continuation now = same();
    const auto fits = check_fits(then, now);
    ASSERT_FALSE(fits);
    EXPECT_THAT(fits.error().message, HasSubstr("was trained with --reset-attention-mask; give it"));
    now.training.shape["document_begins"] = 7;
    EXPECT_THAT(check_fits(then, now).error().message,
                HasSubstr("begin with token 256, and the data's begin with 7"));
    now.training.shape["document_begins"] = 256;
    EXPECT_TRUE(check_fits(then, now));
}

TEST(Fits, AnotherGlobalBatchGetsTheNumbersThatMakeIt) {
    struct Case {
        std::int64_t world, batch, accumulate;
        const char* advice;  // for a global batch of 64
    };
    const Case cases[] = {
        {1, 32, 1, "; give --batch-size 64 --accumulate 1, or --batch-size 32 --accumulate 2"},
        {1, 4, 1, "; give --batch-size 64 --accumulate 1, or --batch-size 4 --accumulate 16"},
        {4, 32, 1, "; give --batch-size 16 --accumulate 1"},
        {4, 32, 8, "; give --batch-size 2 --accumulate 8"},
        {2, 16, 4, "; give --batch-size 8 --accumulate 4, or --batch-size 16 --accumulate 2"},
        {2, 16, 3, "; give --batch-size 32 --accumulate 1, or --batch-size 16 --accumulate 2"},
        {3, 32, 1, "; take a number of ranks that divides 64"},
        {128, 1, 1, "; take a number of ranks that divides 64"},
    };
    for (const auto& c : cases) {
        Continuation now = same();
        now.world = c.world;
        now.batch = c.batch;
        now.accumulate = c.accumulate;
        now.training.global_batch = c.world * c.batch * c.accumulate;
        const auto fits = check_fits(manifest(), now);
        ASSERT_FALSE(fits);
        EXPECT_TRUE(fits.error().message.ends_with(c.advice))
            << fits.error().message << "\ninstead of " << c.advice;
    }
}

}  // namespace
}  // namespace dp::trainer
