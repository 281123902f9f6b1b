// SPDX-License-Identifier: Apache-2.0
//
// `trainer export`: what it writes is what the training ended with, whole or not at all.
#include "trainer/commands/export.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "saved_training.hpp"
#include "small_files.hpp"
#include "small_models.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_weights.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Export : public ::testing::Test {
 protected:
    const Scratch scratch_;
    const fs::path saved_ = scratch_ / "saved", output_ = scratch_ / "new" / "model";

    // A gpt that was trained for some steps by two ranks; the values at the end.
    std::vector<float> train(std::int64_t steps = 3) const {
        Settings settings;
        settings.epochs = std::nullopt;
        settings.max_steps = steps;
        settings.batch = 4;
        settings.rate.rate = 1e-2;
        settings.checkpoints.directory = saved_;
        return outcome_of(train_saved(2, settings, {}, random_text(16, 16, 100), "gpt", shape())).parameters;
    }
    Result<void> exported(const fs::path& checkpoint, std::optional<fs::path> data = {}) {
        ::testing::internal::CaptureStdout();
        auto done = export_model({checkpoint, "safetensors", std::move(data), output_});
        said_ = ::testing::internal::GetCapturedStdout();
        return done;
    }
    std::vector<float> read_back() const {
        const auto device = open_cpu(1);
        const auto model = make_language_model(shape().gpt);
        model->place(*device, 9, 1);
        const auto weights = Gpt2Weights::open(output_, shape().gpt, model->parameters());
        EXPECT_TRUE(weights) << weights.error().message;
        EXPECT_TRUE(weights && weights->has_config() && weights->load(model->parameters(), *device));
        return model->parameters().download(*device);
    }
    std::string said_;
};

TEST_F(Export, WritesWhatTheTrainingEndedWithToTheBit) {
    const auto values = train();
    ASSERT_TRUE(exported(saved_));
    EXPECT_THAT(
        said_,
        HasSubstr("model: model.safetensors and config.json of step 3, without a tokenizer (--data-dir)\n"));
    EXPECT_THAT(names_in(output_), ElementsAre("config.json", "model.safetensors"));
    EXPECT_THAT(names_in(output_.parent_path()), ElementsAre("model"));
    EXPECT_EQ(read_back(), values);
    const auto opened = open_tensor_file(output_ / "model.safetensors");
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->size(), 28u);
    EXPECT_EQ(opened->at("transformer.wte.weight").shape, (Shape{100, 48})) << "without the spare rows";
    EXPECT_EQ(opened->at("transformer.h.1.mlp.c_fc.weight").shape, (Shape{48, 192}));
    EXPECT_FALSE(opened->contains("lm_head.weight"));
    const auto config = nlohmann::json::parse(contents_of(output_ / "config.json"));
    for (const auto& [key, value] : {std::pair<const char*, int>{"n_layer", 2},
                                     {"n_head", 2},
                                     {"n_embd", 48},
                                     {"n_positions", 16},
                                     {"vocab_size", 100}})
        EXPECT_EQ(config.at(key), value) << key;
    EXPECT_EQ(config.at("architectures"), nlohmann::json({"GPT2LMHeadModel"}));
    EXPECT_TRUE(config.at("eos_token_id").is_null());
}

TEST_F(Export, TakesOneCheckpointOrTheNewestWholeOne) {
    const auto older = train(), newer = train(5);
    for (const char* name : {"saved/step-000000003", "saved/step-000000003/"}) {
        ASSERT_TRUE(exported(scratch_ / name)) << name;
        EXPECT_EQ(read_back(), older);
        fs::remove_all(output_);
    }
    ASSERT_TRUE(exported(saved_));
    EXPECT_EQ(read_back(), newer);
    fs::remove_all(output_);
    fs::resize_file(checkpoint_path(saved_, 5) / shard_name(1, 2), 7);
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(exported(saved_));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("; going back to step-000000003"));
    EXPECT_EQ(read_back(), older);
    EXPECT_THAT(refusal_of(exported(checkpoint_path(saved_, 5))),
                HasSubstr("step-000000005 is damaged: rank-00001-of-00002.f32"));
}

TEST_F(Export, BringsGpt2sTokenizerWhereTheDataHasIt) {
    train();
    fs::create_directory(scratch_ / "data");
    const auto gpt2 = make_gpt2_tokenizer("#version: 0.2\nl o\n", "here");
    ASSERT_TRUE(gpt2 && save_tokenizer(**gpt2, scratch_ / "data"));
    EXPECT_THAT(refusal_of(exported(saved_, scratch_ / "data")),
                HasSubstr("its tokenizer has 258 tokens, and the model 100; give the data"));
    EXPECT_FALSE(fs::exists(output_.parent_path())) << "nothing is left";
    EXPECT_THAT(refusal_of(exported(saved_, scratch_ / "none")),
                HasSubstr("none: no tokenizer there (tokenizer.json, "));

    ModelShape wide = shape();
    wide.gpt.vocabulary = 300;
    Settings settings;
    settings.batch = 4;
    settings.checkpoints.directory = scratch_ / "wide";
    outcome_of(train_saved(1, settings, {}, random_text(16, 16, 258), "gpt", wide));
    ASSERT_TRUE(exported(scratch_ / "wide", scratch_ / "data"));
    EXPECT_THAT(said_, HasSubstr(", with GPT-2's tokenizer (vocab.json, merges.txt)\n"));
    EXPECT_EQ(contents_of(output_ / "merges.txt"), "#version: 0.2\nl o\n");
    EXPECT_EQ(contents_of(output_ / "vocab.json"), (*gpt2)->vocabulary_json());
    EXPECT_EQ(nlohmann::json::parse(contents_of(output_ / "config.json")).at("eos_token_id"), 257);
    EXPECT_EQ(nlohmann::json::parse(contents_of(output_ / "generation_config.json")).at("eos_token_id"), 257);
    const auto config = nlohmann::json::parse(contents_of(output_ / "tokenizer_config.json"));
    EXPECT_EQ(config.at("eos_token"), "<|endoftext|>");
    EXPECT_EQ(config.at("model_max_length"), wide.gpt.sequence);
    fs::remove_all(output_);
    ASSERT_TRUE(save_tokenizer(*make_byte_tokenizer(), scratch_ / "data"));
    ASSERT_TRUE(exported(scratch_ / "wide", scratch_ / "data"));
    EXPECT_THAT(said_,
                HasSubstr(", without a tokenizer: its tokens are bytes, for which transformers has none\n"));
    EXPECT_EQ(nlohmann::json::parse(contents_of(output_ / "config.json")).at("eos_token_id"), 256);
}

// So nobody has to know how large they are.
TEST_F(Export, SaysTheSizesOfAModelThatBeginsWithIt) {
    train();
    ASSERT_TRUE(exported(saved_));
    const auto sized = [&](std::vector<std::string> words) {
        words.push_back("--init-from=" + output_.string());
        const Parsed parsed = parse_options(words);
        EXPECT_TRUE(parsed.options) << parsed.text;
        return sized_by_weights(*parsed.options);
    };
    const auto sizes_of = [](const Options& options) {
        const GptShape& gpt = completed(options, *find_model("gpt")).shape.gpt;
        return std::array{gpt.layers, gpt.hidden, gpt.heads, gpt.sequence, gpt.vocabulary};
    };
    const auto sizes = [](const GptShape& gpt) {
        return std::array{gpt.layers, gpt.hidden, gpt.heads, gpt.sequence, gpt.vocabulary};
    };
    const GptShape mine = shape().gpt;
    EXPECT_EQ(sizes_of(sized({})), sizes(mine));
    EXPECT_EQ(choose_model(sized({}), true)->info->name, "gpt");
    GptShape other = mine;
    other.layers = 7;  // is refused later, with the option that is right
    EXPECT_EQ(sizes_of(sized({"--model=gpt", "--num-layers=7"})), sizes(other));
    EXPECT_FALSE(sized({"--model=cnn"}).gave("--num-layers"));
    EXPECT_FALSE(sized({"--gpt-size=124M"}).gave("--num-layers"));
    // A training goes on when what it began with is gone.
    fs::remove_all(output_);
    EXPECT_FALSE(sized({}).gave("--num-layers"));
    EXPECT_EQ(sizes_of(sized({"--checkpoint-dir=" + saved_.string()})), sizes(mine));
}

TEST_F(Export, OtherModelsAndPlacesAreRefusedInOneLine) {
    EXPECT_THAT(refusal_of(exported(scratch_ / "none")),
                HasSubstr("--checkpoint " + (scratch_ / "none").string() + ": no checkpoint there; "));
    Settings settings = saved_settings(scratch_ / "ffn");
    settings.max_steps = 1;
    outcome_of(train_saved(1, settings));
    EXPECT_THAT(refusal_of(exported(scratch_ / "ffn")),
                HasSubstr("step-000000001: is of the model ffn, and only gpt can be exported"));
    train();
    scratch_.write("new/model/mine", "");
    EXPECT_THAT(refusal_of(exported(saved_)),
                HasSubstr("/new/model: is not empty; give another --output, or remove it"));
    fs::remove(output_ / "mine");
    EXPECT_TRUE(exported(saved_)) << "an empty one is taken";
    fs::remove_all(output_);
    scratch_.write("new/model", "mine");
    constexpr const char* kIsAFile = "/new/model: is a file or a link; give another --output";
    EXPECT_THAT(refusal_of(exported(saved_)), HasSubstr(kIsAFile));
    EXPECT_EQ(contents_of(output_), "mine");
    fs::resize_file(output_, 0);
    EXPECT_THAT(refusal_of(exported(saved_)), HasSubstr(kIsAFile)) << "an empty one, too";
    fs::remove(output_);
    fs::create_symlink("nowhere", output_);
    EXPECT_THAT(refusal_of(exported(saved_)), HasSubstr(kIsAFile));
}

TEST_F(Export, AFullDiskLeavesNothing) {
    train();
    {
        const SmallFiles full(4000);
        EXPECT_THAT(refusal_of(exported(saved_)),
                    HasSubstr("model.safetensors: cannot write: File too large"));
    }
    EXPECT_FALSE(fs::exists(output_.parent_path()));
    EXPECT_TRUE(exported(saved_));
}

TEST(ExportOptionsTest, ArriveAndAreRefused) {
    const Parsed parsed = parse_options({"export", "--checkpoint=c", "--output=o", "--data-dir=d"});
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->command, Command::export_model);
    EXPECT_EQ(parsed.options->export_model.checkpoint, "c");
    EXPECT_EQ(parsed.options->export_model.format, "safetensors");
    EXPECT_EQ(parsed.options->export_model.output, "o");
    EXPECT_EQ(parsed.options->export_model.data_directory, "d");
    EXPECT_TRUE(is_for_one(Command::export_model));
    EXPECT_TRUE(writes_files(*parsed.options));
    EXPECT_THAT(parse_options({"export", "--output=o"}).text, HasSubstr("--checkpoint is required"));
    EXPECT_THAT(parse_options({"export", "--checkpoint=c"}).text, HasSubstr("--output is required"));
    EXPECT_THAT(parse_options({"export", "--checkpoint=c", "--output=o", "--format=onnx"}).text,
                HasSubstr("--format: 'onnx' is not one of safetensors"));
}

}  // namespace
}  // namespace dp::trainer
