// SPDX-License-Identifier: Apache-2.0
//
// gpt's parameters from files of GPT-2's weights: which tensor is which parameter, what is refused in which words, and a
// training that begins with them. tests/clients/test_gpt2_weights.py has what PyTorch computes with the same files.
#include "trainer/models/gpt2_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <stdlib.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "saved_training.hpp"
#include "small_models.hpp"
#include "trainer/base/bfloat16.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_config.hpp"
#include "trainer/prepare/prepare.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor for a file, of any type.
struct StoredBytes {
    std::string name, dtype;
    Shape shape;
    std::string bytes;
};

std::string file_with(const std::vector<StoredBytes>& tensors) {
    std::string header = "{", data;
    for (const auto& one : tensors) {
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                              data.empty() ? "" : ",", one.name, one.dtype, fmt::join(one.shape, ","),
                              data.size(), data.size() + one.bytes.size());
        data += one.bytes;
    }
    header += "}";
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

template <typename Numbers>
std::string bytes_of(const Numbers& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]};
}

GptShape small() {
    return shape().gpt;
}

// A gpt on the CPU, with the values of a seed.
struct Placed {
    std::unique_ptr<Device> device = open_cpu(1);
    std::unique_ptr<Model> model;

    explicit Placed(std::uint64_t seed, const GptShape& shape = small()) : model(make_language_model(shape)) {
        model->place(*device, seed, 1);
    }
    const ParameterSet& parameters() const { return model->parameters(); }
    std::vector<float> values() const { return parameters().download(*device); }
    std::vector<StoredBytes> tensors() const {
        std::vector<StoredBytes> tensors;
        for (const auto& one : parameters().all()) {
            const auto tensor = gpt2_tensor(one.name, one.shape);
            auto numbers = device->values_of<float>(one.value);
            if (tensor.is_transposed) numbers = transposed(numbers, one.shape[0], one.shape[1]);
            tensors.push_back({tensor.name, "F32", tensor.shape, bytes_of(numbers)});
        }
        return tensors;
    }
    Result<std::uint64_t> load(const std::filesystem::path& from, const GptShape& shape = small()) const {
        const auto weights = DP_TRY(Gpt2Weights::open(from, shape, parameters()));
        return weights.load(parameters(), *device);
    }
};

class Gpt2Files : public ::testing::Test {
 protected:
    const Scratch scratch_;
    const Placed source_{3};

    std::filesystem::path file_of(const std::vector<StoredBytes>& tensors) const {
        return scratch_.write("model.safetensors", file_with(tensors));
    }
    // What a gpt has after it has read the file.
    std::vector<float> loaded(const std::filesystem::path& from) const {
        const Placed reader(4);
        const auto done = reader.load(from);
        EXPECT_TRUE(done) << done.error().message;
        return reader.values();
    }
    StoredBytes& named(std::vector<StoredBytes>& tensors, std::string_view name) const {
        return *std::ranges::find(tensors, name, &StoredBytes::name);
    }
};

TEST(Gpt2Tensors, HaveTheNamesAndShapesOfTransformers) {
    std::vector<std::string> all;
    GptShape one = small();
    one.layers = 1;
    const auto model = make_language_model(one);
    for (const auto& parameter : model->parameters().all()) {
        const auto tensor = gpt2_tensor(parameter.name, parameter.shape);
        all.push_back(fmt::format("{} {}{}", tensor.name, fmt::join(tensor.shape, "x"),
                                  tensor.is_transposed ? " T" : ""));
    }
    EXPECT_THAT(all,
                ElementsAre("wte.weight 100x48", "wpe.weight 16x48", "h.0.ln_1.weight 48", "h.0.ln_1.bias 48",
                            "h.0.attn.c_attn.weight 48x144 T", "h.0.attn.c_attn.bias 144",
                            "h.0.attn.c_proj.weight 48x48 T", "h.0.attn.c_proj.bias 48", "h.0.ln_2.weight 48",
                            "h.0.ln_2.bias 48", "h.0.mlp.c_fc.weight 48x192 T", "h.0.mlp.c_fc.bias 192",
                            "h.0.mlp.c_proj.weight 192x48 T", "h.0.mlp.c_proj.bias 48", "ln_f.weight 48",
                            "ln_f.bias 48"));
}

TEST(Gpt2Tensors, AreTransposedInBlocksAndAtTheirEdges) {
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 3}, {32, 64}, {33, 70}, {100, 1}}) {
        std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
        const auto turned = transposed(numbers, rows, columns);
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < columns; ++column)
                ASSERT_EQ(turned[static_cast<std::size_t>(column * rows + row)],
                          static_cast<float>(row * columns + column));
        EXPECT_EQ(transposed(turned, columns, rows), numbers);
    }
}

TEST_F(Gpt2Files, GiveTheSameBitsWithOrWithoutWhatOthersWrite) {
    auto tensors = source_.tensors();
    EXPECT_NE(Placed(4).values(), source_.values());
    EXPECT_EQ(loaded(file_of(tensors)), source_.values());
    // As older versions of transformers saved GPT2LMHeadModel: masks, and the head as a tensor of its own.
    for (auto& one : tensors) one.name = "transformer." + one.name;
    tensors.push_back({"transformer.h.0.attn.bias", "U8", {1, 1, 16, 16}, std::string(256, '\1')});
    tensors.push_back({"transformer.h.1.attn.masked_bias", "F32", {}, std::string(4, '\0')});
    tensors.push_back({"lm_head.weight", "F32", {100, 48}, named(tensors, "transformer.wte.weight").bytes});
    EXPECT_EQ(loaded(file_of(tensors)), source_.values());
    EXPECT_EQ(loaded(scratch_.path()), source_.values()) << "a directory";
}

TEST_F(Gpt2Files, AWeightOfALinearLayerIsTurned) {
    auto tensors = source_.tensors();
    std::vector<float> inputs_first;
    for (int input = 0; input < 48; ++input)
        for (int output = 0; output < 144; ++output)
            inputs_first.push_back(static_cast<float>(1000 * input + output));
    named(tensors, "h.1.attn.c_attn.weight").bytes = bytes_of(inputs_first);
    const Placed reader(4);
    ASSERT_TRUE(reader.load(file_of(tensors)));
    const auto& all = reader.parameters().all();
    const auto weight = std::ranges::find(all, "h.1.attn.c_attn.weight", &Parameter::name);
    const auto values = reader.device->values_of<float>(weight->value);
    EXPECT_EQ(values[0 * 48 + 7], 7000);
    EXPECT_EQ(values[143 * 48 + 2], 2143);
}

TEST_F(Gpt2Files, OfHalfTheBitsAreReadExactly) {
    auto tensors = source_.tensors();
    std::vector<float> rounded = source_.values();
    for (float& value : rounded) value = to_float(to_bfloat16(value));
    for (auto& one : tensors) {
        std::vector<float> numbers(one.bytes.size() / sizeof(float));
        std::memcpy(numbers.data(), one.bytes.data(), one.bytes.size());
        std::vector<Bfloat16> half;
        for (const float number : numbers) half.push_back(to_bfloat16(number));
        one.dtype = "BF16";
        one.bytes = bytes_of(half);
    }
    EXPECT_EQ(loaded(file_of(tensors)), rounded);
    named(tensors, "wpe.weight").dtype = "F16";  // of the same size: 1.0 for each
    named(tensors, "wpe.weight").bytes = bytes_of(std::vector<std::uint16_t>(16 * 48, 0x3C00));
    const auto values = loaded(file_of(tensors));
    EXPECT_EQ(values[100 * 48], 1.0f);
    EXPECT_EQ(values[100 * 48 + 16 * 48 - 1], 1.0f);
    EXPECT_EQ(values[0], rounded[0]);
}

TEST_F(Gpt2Files, TheHashIsThatOfTheValues) {
    auto tensors = source_.tensors();
    const Placed reader(4);
    const auto file = file_of(tensors);
    const auto first = *reader.load(file);
    EXPECT_EQ(*reader.load(file), first);
    named(tensors, "ln_f.bias").bytes[0] ^= 1;
    EXPECT_NE(*reader.load(file_of(tensors)), first);
}

// Each change of a right file, and what is said.
TEST_F(Gpt2Files, ThatDoNotFitAreRefusedWithTheOptionsThatDo) {
    using Change = std::function<void(std::vector<StoredBytes>&, GptShape&)>;
    const auto without = [](const char* name) {
        return [name](std::vector<StoredBytes>& tensors, GptShape&) {
            std::erase_if(tensors, [&](const auto& one) { return one.name == name; });
        };
    };
    const auto with = [](const char* name, const char* dtype, Shape shape, std::size_t bytes) {
        return [=](std::vector<StoredBytes>& tensors, GptShape&) {
            tensors.push_back({name, dtype, shape, std::string(bytes, '\0')});
        };
    };
    const auto set = [](std::int64_t GptShape::*size, std::int64_t value) {
        return [=](std::vector<StoredBytes>&, GptShape& shape) { shape.*size = value; };
    };
    const std::pair<Change, std::string> cases[] = {
        {[](auto&, GptShape& shape) { shape = {}; },
         "wte.weight is 100 x 48, and this model's is 50257 x 384; give --num-layers=2 --hidden-size=48 "
         "--num-attention-heads=1 "
         "--seq-length=16 --vocab-size=100"},
        {set(&GptShape::vocabulary, 104),
         "wte.weight is 100 x 48, and this model's is 104 x 48; give --vocab-size=100"},
        {set(&GptShape::sequence, 8),
         "wpe.weight is 16 x 48, and this model's is 8 x 48; give --seq-length=16"},
        {set(&GptShape::layers, 1),
         "h.1.attn.c_attn.bias is 144, and this model has none; give --num-layers=2"},
        {set(&GptShape::layers, 3),
         "h.2.ln_1.weight is missing, and this model's is 48; give --num-layers=2"},
        {without("wte.weight"), "has no matrix wte.weight, so it is not of GPT-2"},
        {without("wpe.weight"), "has no matrix wpe.weight, so it is not of GPT-2"},
        {without("ln_f.bias"), "ln_f.bias is missing, and this model's is 48; no option changes that"},
        {[&](auto& tensors, auto&) {
             named(tensors, "h.0.mlp.c_fc.weight").shape = {192, 48};
         },
         "h.0.mlp.c_fc.weight is 192 x 48, and this model's is 48 x 192; no option changes that"},
        {[&](auto& tensors, auto&) { named(tensors, "wte.weight").shape = {4800}; },
         "has no matrix wte.weight"},
        {[&](auto& tensors, auto&) { named(tensors, "ln_f.bias").dtype = "I32"; },
         "ln_f.bias is of type I32, and the trainer reads F32, F16 and BF16"},
        {with("score.weight", "F32", {2, 48}, 384), "has score.weight, which GPT-2 has not"},
        {with("h.0.attn.rotary", "F32", {1}, 4), "has h.0.attn.rotary, which GPT-2 has not"},
        {with("transformer.ln_f.bias", "F32", {48}, 192),
         "has ln_f.bias twice, with and without transformer."},
        {with("lm_head.weight", "F32", {100, 48}, 19200), "has a lm_head.weight that is not its wte.weight"},
        {with("lm_head.weight", "BF16", {100, 48}, 9600), "has a lm_head.weight that is not its wte.weight"},
        {[&](auto& tensors, auto&) { named(tensors, "wte.weight").bytes.replace(8, 4, "\0\0\x80\x7f", 4); },
         "wte.weight holds numbers that are NaN or infinite"},
        {[&](auto& tensors, auto&) {
             named(tensors, "wte.weight") = {"wte.weight", "F32", {70000, 1}, std::string(280'000, '\0')};
         },
         "has 70000 tokens, and the trainer's gpt has at most 65536"},
    };
    for (const auto& [change, says] : cases) {
        auto tensors = source_.tensors();
        GptShape own = small();
        change(tensors, own);
        const Placed reader(4, own);
        const std::string said = refusal_of(reader.load(file_of(tensors), own));
        EXPECT_THAT(said, HasSubstr("model.safetensors: " + says));
        EXPECT_EQ(said.find('\n'), std::string::npos);
    }
}

TEST_F(Gpt2Files, WhatTheirConfigSaysIsChecked) {
    const auto file = file_of(source_.tensors());
    EXPECT_FALSE(Gpt2Weights::open(file, small(), source_.parameters())->has_config());
    const std::pair<std::string, std::string> cases[] = {
        {R"({"n_head":2,"activation_function":"gelu_pytorch_tanh","layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":7})",
         ""},
        {gpt2_config_text(small(), 99), ""},
        {R"({})", "is of 12 attention heads, and this model has 2; give --num-attention-heads=12"},
        {R"({"n_head":3})", "is of 3 attention heads, and this model has 2; give --num-attention-heads=3"},
        {R"({"n_head":0})", "its config.json has the n_head 0"},
        {R"({"n_head":"2"})", "its config.json has the n_head \"2\""},
        {R"({"n_head":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}",
         "has the n_head array"},
        {R"({"n_head":2,"model_type":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}",
         "has model_type array, and the trainer's gpt \"gpt2\""},
        {R"([2])", "its config.json is not a JSON object"},
        {R"({)", "its config.json is not a JSON object"},
        {R"({"n_head":2,"model_type":"llama"})",
         R"(its config.json has model_type "llama", and the trainer's gpt "gpt2")"},
        {R"({"n_head":2,"activation_function":"gelu"})",
         R"(has activation_function "gelu", and the trainer's gpt "gelu_new")"},
        {R"({"n_head":2,"layer_norm_epsilon":1e-6})",
         "has layer_norm_epsilon 1e-06, and the trainer's gpt 1e-05"},
        {R"({"n_head":2,"scale_attn_weights":false})",
         "has scale_attn_weights false, and the trainer's gpt true"},
        {R"({"n_head":2,"scale_attn_by_inverse_layer_idx":true})",
         "has scale_attn_by_inverse_layer_idx true, and the trainer's gpt false"},
        {R"({"n_head":2,"tie_word_embeddings":false})",
         "has tie_word_embeddings false, and the trainer's gpt true"},
        {R"({"n_head":2,"add_cross_attention":true})",
         "has add_cross_attention true, and the trainer's gpt false"},
    };
    for (const auto& [config, says] : cases) {
        scratch_.write("config.json", config);
        const auto opened = Gpt2Weights::open(file, small(), source_.parameters());
        if (says.empty()) {
            EXPECT_TRUE(opened && opened->has_config()) << config;
        } else {
            EXPECT_THAT(refusal_of(opened), HasSubstr(says));
        }
    }
}

// ---- in a training

Settings begun_with(const Scratch& scratch,
                    std::function<Result<std::uint64_t>(const ParameterSet&, Device&)> read) {
    Settings settings;
    settings.epochs = std::nullopt;
    settings.max_steps = 1;
    settings.batch = 4;
    settings.rate.rate = 1e-30;  // so the values stay
    settings.checkpoints.directory = scratch / "saved";
    settings.begin_with = GivenValues{"what was given", std::move(read)};
    return settings;
}

std::vector<RankOf> train_gpt(std::int64_t ranks, const Settings& settings) {
    return train_saved(ranks, settings, {}, random_text(16, 16, 100), "gpt", shape());
}

TEST_F(Gpt2Files, ATrainingBeginsWithThemOnEveryRankAndResumesWithoutThem) {
    const auto file = file_of(source_.tensors());
    std::atomic<int> read = 0;
    Settings settings =
        begun_with(scratch_, [&](const ParameterSet& parameters, Device& device) -> Result<std::uint64_t> {
            ++read;
            const auto weights = DP_TRY(Gpt2Weights::open(file, small(), parameters));
            return weights.load(parameters, device);
        });
    auto ranks = train_gpt(2, settings);
    EXPECT_LT(relative_difference(outcome_of(ranks).parameters, source_.values()), 1e-20);
    EXPECT_EQ(read, 2);
    for (const auto& rank : ranks)
        EXPECT_THAT(rank.seen.given_values, ElementsAre("the weights are those of what was given"));

    settings.max_steps = 2;
    std::filesystem::remove(file);
    ranks = train_gpt(2, settings);
    EXPECT_EQ(outcome_of(ranks).resumed, 1);
    EXPECT_EQ(read, 2);
    EXPECT_THAT(ranks[0].seen.given_values,
                ElementsAre("what was given is not read: the training resumes from its checkpoint"));
}

TEST(GivenValuesOfATraining, ThatDifferOrFailEndItOnAllRanksWithOneLine) {
    const Scratch scratch;
    std::atomic<std::uint64_t> calls = 0;
    EXPECT_EQ(the_error(train_gpt(3, begun_with(scratch,
                                                [&](const ParameterSet&, Device&) -> Result<std::uint64_t> {
                                                    return ++calls / 3;
                                                })))
                  .message,
              "what was given: the ranks read different weights there; give all the same");
    calls = 0;
    const Error error = the_error(
        train_gpt(3, begun_with(scratch, [&](const ParameterSet&, Device&) -> Result<std::uint64_t> {
                      if (++calls == 2) return fail(Fault::usage, "cannot read it here");
                      return 7;
                  })));
    EXPECT_EQ(error.message, "cannot read it here");
    EXPECT_EQ(error.fault, Fault::usage);
}

// ---- as a command

class InitFrom : public ::testing::Test {
 protected:
    InitFrom() {
        setenv("OMP_NUM_THREADS", "1", 1);
        PrepareOptions prepare;
        prepare.text = {scratch_.write("text.txt", std::string(3000, 'a'))};
        prepare.tokenizer = "bytes";
        prepare.validation = 0.1;
        prepare.output = scratch_ / "data";
        const auto prepared = prepare_data(prepare);
        EXPECT_TRUE(prepared) << prepared.error().message;
        scratch_.write("weights/model.safetensors", file_with(source_.tensors()));
    }
    ~InitFrom() override { unsetenv("OMP_NUM_THREADS"); }

    // Larger than those that a training draws, so that the loss shows them.
    static GptShape wide() {
        return {.layers = 2,
                .hidden = 48,
                .heads = 2,
                .sequence = 16,
                .vocabulary = 257,
                .initial_deviation = 0.5f};
    }
    std::string weights() const { return (scratch_ / "weights").string(); }
    Result<std::string> run_with(const std::vector<std::string>& words) const {
        std::vector<std::string> all{"--model=gpt",      "--num-layers=2",
                                     "--hidden-size=48", "--num-attention-heads=2",
                                     "--seq-length=16",  "--batch-size=2",
                                     "--lr=1e-30",       "--device=cpu",
                                     "--no-cache",       "--data-dir=" + (scratch_ / "data").string()};
        all.insert(all.end(), words.begin(), words.end());
        const Parsed parsed = parse_options(all);
        if (!parsed.options) return fail(Fault::usage, parsed.text);
        ::testing::internal::CaptureStdout();
        const auto done = run(*parsed.options, std::chrono::steady_clock::now());
        std::string printed = ::testing::internal::GetCapturedStdout();
        if (!done) return tl::unexpected(done.error());
        return printed;
    }
    static double test_loss(const std::string& printed) {
        const auto line = printed.substr(printed.rfind('\n', printed.size() - 2) + 1);
        return nlohmann::json::parse(line).at("test_loss").get<double>();
    }

    const Scratch scratch_;
    const Placed source_{3, wide()};
};

TEST_F(InitFrom, SaysWhatItBeginsWithAndComputesWithItInEitherPrecision) {
    const std::string file = weights() + "/model.safetensors", from = "--init-from=";
    const auto believed = run_with({"--steps=1", from + file});
    ASSERT_TRUE(believed) << believed.error().message;
    EXPECT_THAT(
        *believed,
        HasSubstr("\nthe weights are those of --init-from " + file +
                  fmt::format(" (no config.json beside them: {} attention heads, of {} numbers each, are "
                              "assumed; give --num-attention-heads if it has others)\n",
                              wide().heads, wide().hidden / wide().heads)));
    scratch_.write("weights/config.json", gpt2_config_text(wide(), std::nullopt));
    const auto known = run_with({"--steps=1", from + weights()});
    ASSERT_TRUE(known) << known.error().message;
    EXPECT_THAT(*known, HasSubstr("\nthe weights are those of --init-from " + weights() + "\n"));
    EXPECT_EQ(test_loss(*known), test_loss(*believed));
    const auto drawn = run_with({"--steps=1", "--init-method-std=0.5", "--seed=3"}),
               half = run_with({"--steps=1", from + weights(), "--bf16"});
    ASSERT_TRUE(drawn && half);
    EXPECT_EQ(test_loss(*known), test_loss(*drawn)) << "it is what this seed draws";
    EXPECT_NEAR(test_loss(*half), test_loss(*known), 0.05);
    const auto others = run_with({"--steps=1", "--seed=3"});
    ASSERT_TRUE(others);
    EXPECT_GT(std::abs(test_loss(*known) - test_loss(*others)), 0.2);
}

TEST_F(InitFrom, IsRefusedBeforeAnythingIsWrittenAndNotReadWhereACheckpointIs) {
    const std::string saved = "--checkpoint-dir=" + (scratch_ / "saved").string(),
                      from = "--init-from=" + weights();
    EXPECT_EQ(refusal_of(run_with({"--steps=1", saved, from, "--num-layers=3"})),
              "--init-from " + weights() +
                  ": h.2.ln_1.weight is missing, and this model's is 48; give --num-layers=2");
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "saved"));
    ASSERT_TRUE(run_with({"--steps=1", saved, from}));
    std::filesystem::remove_all(weights());
    EXPECT_THAT(refusal_of(run_with({"--steps=1", from})),
                HasSubstr(": cannot read: No such file or directory"));
    const auto resumed = run_with({"--steps=2", saved, from});
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_THAT(*resumed, HasSubstr("\n--init-from " + weights() +
                                    " is not read: the training resumes from its checkpoint\n"));
}

}  // namespace
}  // namespace dp::trainer
