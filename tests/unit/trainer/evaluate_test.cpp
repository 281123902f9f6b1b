// SPDX-License-Identifier: Apache-2.0
//
// `trainer evaluate`: what it says of a checkpoint is what the training said at its end, of any model, on any number of ranks.
#include "trainer/commands/evaluate.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "saved_training.hpp"
#include "small_models.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/prepare/prepare.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::steady_clock::time_point kNow{};

// Some that each model learns something of.
Dataset small_data(const ModelInfo& info) {
    switch (info.data) {
        case DataSet::fashion_mnist:
            return pattern_set();
        case DataSet::linear_regression:
            return make_linear_regression();
        case DataSet::segmentation:
            return bright_pixels(21, shape().image_size);
        case DataSet::tokens:
            return random_text(37, 16, 100);
    }
    return {};
}

SavedModel opened(const fs::path& directory) {
    auto saved = open_saved_model("--checkpoint-dir", directory);
    EXPECT_TRUE(saved) << saved.error().message;
    return *saved;
}

// As all ranks find it.
std::vector<Evaluated> evaluated_on(std::int64_t world, const SavedModel& saved, const Dataset& data,
                                    Precision precision = Precision::fp32) {
    std::vector<Evaluated> found(static_cast<std::size_t>(world));
    ThreadWorld(world).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        auto evaluation = SavedModelEvaluation::make(saved, precision, *device);
        ASSERT_TRUE(evaluation) << evaluation.error().message;
        const auto tested = evaluation->test(data, ranks);
        ASSERT_TRUE(tested) << tested.error().message;
        found[static_cast<std::size_t>(ranks.rank())] = *tested;
    });
    return found;
}

struct EvaluateEach : ::testing::TestWithParam<std::tuple<std::string, Precision>> {};
INSTANTIATE_TEST_SUITE_P(Model, EvaluateEach,
                         ::testing::Combine(::testing::Values("linear", "ffn", "cnn", "gpt", "unet2d"),
                                            ::testing::Values(Precision::fp32, Precision::bf16)),
                         [](const auto& one) {
                             return std::get<0>(one.param) + "_" +
                                    std::string(name_of(std::get<1>(one.param)));
                         });

TEST_P(EvaluateEach, SaysWhatTheTrainingSaidAtItsEndOnAnyNumberOfRanks) {
    const auto& [name, precision] = GetParam();
    const ModelInfo& info = *find_model(name);
    const Scratch scratch;
    const Dataset data = small_data(info);
    Settings settings;
    settings.epochs = std::nullopt;
    settings.max_steps = 6;
    settings.batch = 8;
    settings.rate.rate = 3e-3;
    settings.precision = precision;
    settings.checkpoints.directory = scratch / "saved";
    const EpochReport end = outcome_of(train_saved(2, settings, {}, data, name.c_str(), shape())).last;
    const SavedModel saved = opened(scratch / "saved");
    EXPECT_EQ(saved.info, &info);
    // Rows are added up in another order, and in bf16 products of other shapes are rounded otherwise.
    const double close = precision == Precision::fp32 ? 1e-5 : 3e-3;
    for (const std::int64_t world : {1, 2, 3})
        for (const Evaluated& found : evaluated_on(world, saved, data, precision)) {
            EXPECT_EQ(found.samples, data.test.count);
            EXPECT_NEAR(found.loss, end.test_loss, close * end.test_loss) << world;
            ASSERT_EQ(found.accuracy.has_value(), end.test_accuracy.has_value());
            if (found.accuracy) {
                EXPECT_NEAR(*found.accuracy, *end.test_accuracy, close);
            }
            ASSERT_EQ(found.perplexity.has_value(), name == "gpt");
            if (found.perplexity) {
                EXPECT_EQ(*found.perplexity, std::exp(found.loss));
            }
            EXPECT_EQ(found.masks.has_value(), name == "unet2d");
        }
}

TEST(Mixed, IsOfASampleThatIsDrawnByTheWeights) {
    const auto tested = [](std::int64_t samples, double loss) {
        return Evaluated{samples, loss, std::nullopt, std::exp(loss), std::nullopt, 2};
    };
    const Evaluated all = mixed({{"large", 0.25, tested(1000, 2)}, {"small", 0.75, tested(1, 4)}});
    EXPECT_EQ(all.samples, 1001);
    EXPECT_DOUBLE_EQ(all.loss, 3.5);
    EXPECT_DOUBLE_EQ(*all.perplexity, std::exp(3.5)) << "not a mean of perplexities";
    EXPECT_EQ(all.seconds, 4);
    EXPECT_FALSE(all.accuracy);
}

TEST(Masks, OverlapIsCountedPixelByPixel) {
    const auto counted = [](const std::vector<float>& logits, const std::vector<float>& targets) {
        MaskCounts counts;
        add_masks(logits, targets, counts);
        return counts;
    };
    struct {
        std::vector<float> logits, targets;
        double iou, dice;
    } const cases[] = {
        {{1, -1, 2, -2}, {1, 0, 1, 0}, 1, 1},
        {{1, 1, -1, -1}, {1, 0, 1, 0}, 1.0 / 3, 0.5},
        {{1, 1, 1, -1}, {1, 0, 0, 0}, 1.0 / 3, 0.5},
        {{1, -1, -1, -1}, {0, 1, 0, 0}, 0, 0},
        {{0, -1}, {1, 0}, 0, 0},   // one half is not above one half
        {{-1, -1}, {0, 0}, 1, 1},  // nothing to find
        {{1, -1}, {0, 0}, 0, 0},
    };
    for (const auto& [logits, targets, iou, dice] : cases) {
        EXPECT_DOUBLE_EQ(counted(logits, targets).iou(), iou);
        EXPECT_DOUBLE_EQ(counted(logits, targets).dice(), dice);
    }
}

// Of images that have much to find and of those that have little, as the masks of all together say it.
TEST(Masks, AreThoseOfAllPixelsOnAnyNumberOfRanksInEitherPrecision) {
    const Scratch scratch;
    const std::int64_t side = shape().image_size, pixels = side * side;
    Dataset data = bright_pixels(21, side);
    auto* masks = reinterpret_cast<float*>(data.test.targets.bytes.data());
    std::fill(masks, masks + 9 * pixels, 0.0f);  // nothing to find in the first 9
    Settings settings;
    settings.epochs = std::nullopt;
    settings.max_steps = 12;
    settings.batch = 8;
    settings.rate.rate = 1e-2;
    settings.checkpoints.directory = scratch / "saved";
    outcome_of(train_saved(1, settings, {}, data, "unet2d", shape()));
    const SavedModel saved = opened(scratch / "saved");

    const auto device = open_cpu(1);
    const auto model = saved.info->make(saved.shape);
    model->place(*device, std::nullopt, 1, Type::f32);
    ASSERT_TRUE(load_values(saved, *model, *device));
    std::int64_t both = 0, predicted = 0, wanted = 0;
    const auto* images = reinterpret_cast<const float*>(data.test.features.bytes.data());
    const Tensor metrics = device->make(Type::f64, {2});
    for (std::int64_t image = 0; image < data.test.count; ++image) {
        const std::span<const float> target(masks + image * pixels, static_cast<std::size_t>(pixels)),
            x(images + image * 3 * pixels, static_cast<std::size_t>(3 * pixels));
        model->evaluate({device->copy_of<float>(Type::f32, {1, 3 * pixels}, x),
                         device->copy_of<float>(Type::f32, {1, pixels}, target),
                         {}},
                        metrics);
        const auto logits = device->values_of<float>(model->mask_logits(1));
        for (std::size_t i = 0; i < target.size(); ++i) {
            const bool is_there = target[i] == 1, is_found = 1 / (1 + std::exp(-logits[i])) > 0.5f;
            both += is_there && is_found;
            predicted += is_found;
            wanted += is_there;
        }
    }
    const double iou = static_cast<double>(both) / static_cast<double>(predicted + wanted - both),
                 dice = 2 * static_cast<double>(both) / static_cast<double>(predicted + wanted);
    EXPECT_GT(iou, 0.05);
    EXPECT_LT(iou, 0.95);
    for (const std::int64_t world : {1, 2, 3})
        for (const Evaluated& found : evaluated_on(world, saved, data)) {
            ASSERT_TRUE(found.masks);
            EXPECT_EQ(found.masks->wanted, wanted);
            EXPECT_NEAR(found.masks->iou(), iou, 1e-4) << "a logit near 0 may be rounded to either side";
            EXPECT_NEAR(found.masks->dice(), dice, 1e-4);
        }
    EXPECT_NEAR(evaluated_on(1, saved, data, Precision::bf16)[0].masks->iou(), iou, 0.02);
    EXPECT_THAT(evaluation_line(evaluated_on(1, saved, data)[0]),
                HasSubstr(fmt::format(" %, IoU {:.3f}", iou).substr(0, 10)));
}

// The subcommands as main.cpp calls them, in a directory.
class EvaluateCommand : public ::testing::Test {
 protected:
    const Scratch scratch_;
    const fs::path saved_ = scratch_ / "saved";
    std::string said_;

    EvaluateCommand() { setenv("OMP_NUM_THREADS", "1", 1); }
    ~EvaluateCommand() override { unsetenv("OMP_NUM_THREADS"); }

    Result<void> done(std::vector<std::string> words) {
        const Parsed parsed = parse_options(words);
        EXPECT_TRUE(parsed.options) << parsed.text;
        if (!parsed.options) return fail(Fault::usage, "{}", parsed.text);
        ::testing::internal::CaptureStdout();
        auto ended = parsed.options->command == Command::evaluate ? evaluate(parsed.options->evaluate, kNow)
                                                                  : run(*parsed.options, kNow);
        said_ = ::testing::internal::GetCapturedStdout();
        return ended;
    }
    Result<void> trained(std::vector<std::string> words) {
        words.insert(words.end(), {"--device=cpu", "--no-cache", "--checkpoint-dir=" + saved_.string()});
        return done(std::move(words));
    }
    Result<void> evaluated(std::vector<std::string> words = {}) {
        words.insert(words.begin(), {"evaluate", "--device=cpu", "--checkpoint-dir=" + saved_.string()});
        return done(std::move(words));
    }
    std::string refusal(std::vector<std::string> words = {}) {
        const auto ended = evaluated(std::move(words));
        EXPECT_FALSE(ended);
        if (ended) return "";
        EXPECT_EQ(ended.error().fault, Fault::usage);
        EXPECT_THAT(ended.error().message, Not(HasSubstr("\n")));
        return ended.error().message;
    }
    nlohmann::json last_line() const {
        const auto end = said_.find_last_not_of('\n');
        const auto before = said_.rfind('\n', end);
        return nlohmann::json::parse(said_.substr(before + 1, end - before));
    }
    // Text as tokens of bytes, in a directory of this name.
    fs::path text(const std::string& name, const std::string& contents) const {
        PrepareOptions options;
        options.text = {scratch_.write(name + ".txt", contents)};
        options.tokenizer = "bytes";
        options.output = scratch_ / name;
        options.validation = 0.2;
        const auto made = prepare_data(options);
        EXPECT_TRUE(made) << made.error().message;
        return options.output;
    }
    static std::string letters(int times, const std::string& what) {
        std::string all;
        for (int i = 0; i < times; ++i) all += what;
        return all;
    }
    const std::vector<std::string> tiny_gpt_{
        "--model=gpt",     "--num-layers=1", "--hidden-size=32", "--num-attention-heads=2",
        "--seq-length=16", "--batch-size=8", "--lr=3e-3",        "--steps=20"};
    std::vector<std::string> tiny_gpt(const fs::path& data) const {
        auto words = tiny_gpt_;
        words.push_back("--data-dir=" + data.string());
        return words;
    }
};

TEST_F(EvaluateCommand, PrintsALineAndAnObjectThatIsTheFileOfJson) {
    ASSERT_TRUE(trained({"--model=linear", "--steps=30", "--seed=4"}));
    const auto end = last_line();
    const fs::path file = scratch_ / "found.json";
    ASSERT_TRUE(evaluated({"--json=" + file.string()}));
    EXPECT_THAT(said_, HasSubstr("step-000000030: linear of step 30 on "));
    EXPECT_THAT(said_, HasSubstr("; 1 rank; 1000 test samples from "));
    EXPECT_THAT(said_, HasSubstr("\ntest loss "));
    const auto found = last_line();
    EXPECT_EQ(nlohmann::json::parse(std::ifstream(file)), found);
    EXPECT_EQ(found.at("evaluated"), "linear");
    EXPECT_EQ(found.at("step"), 30);
    EXPECT_EQ(found.at("seed"), 4);
    EXPECT_EQ(found.at("test_samples"), 1000);
    EXPECT_EQ(found.at("precision"), "fp32");
    const double loss = end.at("test_loss");
    EXPECT_NEAR(found.at("test_loss"), loss, 1e-5 * loss);
    EXPECT_FALSE(found.contains("test_accuracy") || found.contains("test_perplexity"));
}

TEST_F(EvaluateCommand, TakesTheShapeAndThePrecisionFromTheCheckpointAndOtherDataWhereItIsGiven) {
    const auto data = text("data", letters(400, "abc")), other = text("other", letters(400, "xyz"));
    auto words = tiny_gpt(data);
    words.push_back("--bf16");
    ASSERT_TRUE(trained(words));
    const double loss = last_line().at("test_loss");
    ASSERT_TRUE(evaluated({"--data-dir=" + data.string()}));
    const auto found = last_line();
    EXPECT_NEAR(found.at("test_loss"), loss, 3e-3 * loss);
    EXPECT_NEAR(found.at("test_perplexity"), std::exp(loss), 1e-2 * std::exp(loss));
    EXPECT_EQ(found.at("precision"), "bf16");
    EXPECT_THAT(said_, HasSubstr(", perplexity "));
    ASSERT_TRUE(evaluated({"--data-dir=" + data.string(), "--precision=fp32"}));
    EXPECT_EQ(last_line().at("precision"), "fp32");
    EXPECT_NE(last_line().at("test_loss"), found.at("test_loss"));
    ASSERT_TRUE(evaluated({"--data-dir=" + other.string()}));
    EXPECT_GT(last_line().at("test_loss"), 1.5 * loss) << "it has learnt another text";
}

TEST_F(EvaluateCommand, TestsEachSetOfAMixAndTheMixByWeight) {
    const auto data = text("data", letters(400, "abc")), other = text("other", letters(800, "xyz"));
    ASSERT_TRUE(trained(tiny_gpt(data)));
    const auto loss_of = [&](const fs::path& set) {
        EXPECT_TRUE(evaluated({"--data-dir=" + set.string()}));
        return last_line().at("test_loss").get<double>();
    };
    const double known = loss_of(data), unknown = loss_of(other);
    ASSERT_TRUE(evaluated({fmt::format("--data={}:3,{}:1", data.string(), other.string())}));
    EXPECT_THAT(said_, HasSubstr(fmt::format("test samples from {} (75 %) and {} (25 %)\n", data.string(),
                                             other.string())));
    EXPECT_THAT(said_, HasSubstr("\n" + data.string() + ": test loss "));
    EXPECT_THAT(said_, HasSubstr("\n" + other.string() + ": test loss "));
    EXPECT_THAT(said_, HasSubstr("\nthe mix: test loss "));
    const auto found = last_line();
    EXPECT_NEAR(found.at("test_loss"), 0.75 * known + 0.25 * unknown, 1e-5);
    EXPECT_NEAR(found.at("test_perplexity"), std::exp(0.75 * known + 0.25 * unknown), 1e-2);
    ASSERT_EQ(found.at("mix").size(), 2u);
    EXPECT_EQ(found.at("mix")[0].at("data"), data.string());
    EXPECT_EQ(found.at("mix")[1].at("weight"), 0.25);
    EXPECT_NEAR(found.at("mix")[1].at("test_loss"), unknown, 1e-5);
    EXPECT_THAT(refusal({fmt::format("--data={}:1,{}:1", data.string(), (scratch_ / "none").string())}),
                HasSubstr("none"));
    fs::remove_all(saved_);
    ASSERT_TRUE(trained({"--model=linear", "--steps=1"}));
    EXPECT_THAT(refusal({"--data=a:1"}), HasSubstr("--data is only for gpt, and "));
}

// Where the cache is, while this lives.
class CacheHome {
 public:
    explicit CacheHome(const fs::path& where) {
        if (const char* const before = std::getenv(kName)) before_ = before;
        ::setenv(kName, where.c_str(), 1);
    }
    CacheHome(const CacheHome&) = delete;
    ~CacheHome() { before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName); }

 private:
    static constexpr const char* kName = "XDG_CACHE_HOME";
    std::optional<std::string> before_;
};

// Texts become tokens as in the training.
TEST_F(EvaluateCommand, TakesTextsWithTheTokenizerOfTheTraining) {
    const CacheHome cache(scratch_ / "cache");
    fs::create_directory(scratch_ / "texts");
    scratch_.write("texts/a.txt", letters(400, "abc"));
    const auto trained_on_texts = [&](const std::string& more) {
        auto words = tiny_gpt(scratch_ / "texts");
        words.insert(words.end(), {"--device=cpu", "--checkpoint-dir=" + saved_.string(), more});
        return done(words).has_value();
    };
    ASSERT_TRUE(trained_on_texts("--seed=1"));
    const double loss = last_line().at("test_loss");
    ASSERT_TRUE(evaluated({"--data-dir=" + (scratch_ / "texts").string()}));
    EXPECT_NEAR(last_line().at("test_loss"), loss, 1e-5 * loss);
    EXPECT_THAT(said_, HasSubstr(" test samples from " + (scratch_ / "texts").string() + "\n"));
    fs::remove_all(saved_);
    ASSERT_TRUE(trained_on_texts("--vocab-size=300"));
    EXPECT_THAT(
        refusal({"--data-dir=" + (scratch_ / "texts").string()}),
        HasSubstr("texts, and no tokenizer beside them; give the training's as --tokenizer (bytes, if "));
    ASSERT_TRUE(evaluated({"--data-dir=" + (scratch_ / "texts").string(), "--tokenizer=bytes"}));
}

// The training had a tokenizer of 260 tokens that does not lie beside the texts, and has its tokens in a cache of its own.
TEST_F(EvaluateCommand, TakesTextsAndTasksWithTheTokenizerThatIsGiven) {
    const CacheHome home(scratch_ / "home");
    const std::string tokenizer =
                          scratch_.write("gpt2/vocab.bpe", "#version: 0.2\nl o\nlo w\na b\n").string(),
                      texts = (scratch_ / "texts").string(),
                      cache = "--cache-dir=" + (scratch_ / "cache").string();
    scratch_.write("texts/a.txt", letters(400, "low ab "));
    auto words = tiny_gpt(texts);
    words.insert(words.end(),
                 {"--device=cpu", "--checkpoint-dir=" + saved_.string(), "--tokenizer=" + tokenizer, cache});
    ASSERT_TRUE(done(words));
    const double loss = last_line().at("test_loss");
    const auto task =
        scratch_.write("task.jsonl", R"({"context": "low ab", "choices": [" low", " wol"], "answer": 0})");
    for (const std::string& given : {tokenizer, (scratch_ / "gpt2").string()}) {
        ASSERT_TRUE(
            evaluated({"--data-dir=" + texts, "--tokenizer=" + given, "--tasks=" + task.string(), cache}));
        EXPECT_NEAR(last_line().at("test_loss"), loss, 1e-5 * loss);
        EXPECT_EQ(last_line().at("tasks").at(0).at("questions"), 1);
    }
    EXPECT_FALSE(fs::exists(scratch_ / "home")) << "--cache-dir says where tokens are";
    // Of tokens it is for the tasks alone.
    const std::string tokens = text("tokens", letters(400, "low ab ")).string();
    ASSERT_TRUE(evaluated({"--data-dir=" + tokens, "--tokenizer=" + tokenizer, "--tasks=" + task.string()}));
    EXPECT_THAT(refusal({"--data-dir=" + tokens, "--tokenizer=" + tokenizer}),
                "--tokenizer is only for texts and --tasks, and " + tokens + " has none; leave it out");
    const auto larger = scratch_.write("more/vocab.bpe", "#version: 0.2\nl o\nlo w\na b\nx y\n").string();
    EXPECT_THAT(refusal({"--data-dir=" + tokens, "--tokenizer=" + larger, "--tasks=" + task.string()}),
                HasSubstr("vocab.bpe: has 261 tokens, and the model 260; give the training's"));
    scratch_.write("texts/b.jsonl", "{\"text\": 3}\n");
    EXPECT_THAT(refusal({"--data-dir=" + texts, "--tokenizer=" + tokenizer}), HasSubstr("b.jsonl:1"));
    ASSERT_TRUE(evaluated({"--data-dir=" + texts, "--tokenizer=" + tokenizer, "--bad-samples=skip"}));
}

TEST_F(EvaluateCommand, AnswersTheQuestionsOfTasks) {
    const auto data = text("data", letters(400, "night "));
    auto words = tiny_gpt(data);
    words.push_back("--steps=120");
    ASSERT_TRUE(trained(words));
    const std::string right = R"({"context": "night night", "choices": ["nicht", "night"], "answer": 1})",
                      wrong = R"({"ctx": "night night", "endings": ["night", "nicht"], "label": "1"})";
    const auto choices = scratch_.write("choices.jsonl", right + "\n" + right + "\n" + wrong + "\n" + right),
               last_words = scratch_.write("last.jsonl", R"({"text": "night night night"})");
    ASSERT_TRUE(evaluated({"--data-dir=" + data.string(), "--tasks", choices.string(), last_words.string()}));
    EXPECT_THAT(said_, HasSubstr(choices.string() + ": 4 questions, acc 75.00 %, acc_norm 75.00 %\n"));
    EXPECT_THAT(said_, HasSubstr(last_words.string() + ": 1 last word, acc 100.00 %, perplexity "));
    const auto found = last_line().at("tasks");
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(
        found[0],
        nlohmann::json({{"file", choices.string()}, {"questions", 4}, {"acc", 0.75}, {"acc_norm", 0.75}}));
    EXPECT_EQ(found[1].at("acc"), 1);
    EXPECT_LT(found[1].at("perplexity"), 10);

    const auto bad = scratch_.write("bad.jsonl", right + "\n{\"text\": 3}\n");
    EXPECT_EQ(refusal({"--data-dir=" + data.string(), "--tasks=" + bad.string()}),
              bad.string() + ":2: \"text\" is no text");
    fs::remove_all(saved_);
    ASSERT_TRUE(trained({"--model=linear", "--steps=1"}));
    EXPECT_THAT(refusal({"--tasks=" + choices.string()}), HasSubstr("--tasks is only for gpt, and "));
}

TEST_F(EvaluateCommand, GoesBackToTheNewestWholeCheckpointOrTakesTheOneThatIsNamed) {
    ASSERT_TRUE(trained({"--model=linear", "--steps=10"}));
    ASSERT_TRUE(trained({"--model=linear", "--steps=20"}));
    ASSERT_TRUE(evaluated());
    EXPECT_EQ(last_line().at("step"), 20);
    fs::resize_file(checkpoint_path(saved_, 20) / shard_name(0, 1), 7);
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(evaluated());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("; going back to step-000000010"));
    EXPECT_EQ(last_line().at("step"), 10);
    ASSERT_TRUE(evaluated({"--checkpoint=" + checkpoint_path(saved_, 10).string()}));
    EXPECT_EQ(last_line().at("step"), 10);
    EXPECT_THAT(refusal({"--checkpoint=" + checkpoint_path(saved_, 20).string()}),
                HasSubstr("step-000000020 is damaged: "));
}

TEST_F(EvaluateCommand, WhatCannotBeEvaluatedIsSaidInOneLine) {
    EXPECT_THAT(refusal(), HasSubstr("saved: no checkpoint there; train with --checkpoint-dir "));
    const auto data = text("data", letters(400, "abc"));
    auto words = tiny_gpt(data);
    ASSERT_TRUE(trained(words));
    EXPECT_THAT(refusal({"--data-dir=" + (scratch_ / "none").string()}), HasSubstr("none: "));
    const auto gpt2 = make_gpt2_tokenizer("#version: 0.2\nl o\nlo w\n", "here");
    fs::copy(data, scratch_ / "more", fs::copy_options::recursive);
    ASSERT_TRUE(gpt2 && save_tokenizer(**gpt2, scratch_ / "more"));
    EXPECT_THAT(refusal({"--data-dir=" + (scratch_ / "more").string()}),
                HasSubstr("more: its tokenizer has 259 tokens, and the model 257; give the data that it was "
                          "trained on"));
    EXPECT_THAT(refusal({"--data-dir=" + data.string(), "--json=" + (scratch_ / "no" / "f").string()}),
                HasSubstr("f cannot be written: "));

    fs::remove_all(saved_);
    Settings settings;
    settings.epochs = std::nullopt;
    settings.max_steps = 1;
    settings.batch = 8;
    settings.checkpoints.directory = saved_;
    outcome_of(train_saved(1, settings));
    EXPECT_THAT(refusal({"--data-dir=" + data.string()}),
                HasSubstr("data: no images there that ffn can be tested on; give the directory"));
}

TEST(EvaluateOptionsTest, ArriveAndAreRefused) {
    const Parsed parsed = parse_options({"evaluate", "--checkpoint-dir=c", "--data-dir=d", "--precision=bf16",
                                         "--device=cpu", "--json=j", "--tokenizer=bytes",
                                         "--bad-samples=skip", "--cache-dir=k", "--tasks", "/", "/tmp"});
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->command, Command::evaluate);
    const EvaluateOptions& options = parsed.options->evaluate;
    EXPECT_EQ(options.checkpoint, "c");
    EXPECT_EQ(options.data_directory, "d");
    EXPECT_EQ(options.precision, Precision::bf16);
    EXPECT_EQ(options.device, DeviceChoice::cpu);
    EXPECT_EQ(options.json, "j");
    EXPECT_EQ(options.tokenizer, "bytes");
    EXPECT_EQ(options.bad_samples, BadSamples::skip);
    EXPECT_EQ(options.cache, "k");
    EXPECT_EQ(options.tasks, (std::vector<fs::path>{"/", "/tmp"}));
    EXPECT_TRUE(writes_files(*parsed.options));
    EXPECT_FALSE(is_for_one(Command::evaluate)) << "all ranks evaluate";
    EXPECT_THAT(parse_options({"evaluate"}).text, HasSubstr("--checkpoint-dir is required"));
    EXPECT_EQ(parse_options({"evaluate", "--checkpoint=c"}).options->evaluate.checkpoint, "c");
}

}  // namespace
}  // namespace dp::trainer
