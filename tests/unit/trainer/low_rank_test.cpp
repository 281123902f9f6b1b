// SPDX-License-Identifier: Apache-2.0
//
// --lora-rank: what adapters add, on every device, against float64, and that training, going on, exporting and evaluating know them.
#include "trainer/models/low_rank.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "devices.hpp"
#include "saved_training.hpp"
#include "slopes.hpp"
#include "small_models.hpp"
#include "trainer/commands/evaluate.hpp"
#include "trainer/commands/export.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/commands/saved_model.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_weights.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kOutputs = 12, kInputs = 8, kRank = 3, kAlpha = 5;

class LowRankTest : public OnEachDevice {
 protected:
    ParameterSet parameters_;
    Parameter* weight_ = &parameters_.add("layer.weight", {kOutputs, kInputs}, Initial::normal(1));
    Parameter* bias_ = &parameters_.add("layer.bias", {kOutputs}, Initial::constant(0));

    const Parameter& named(const std::string& name) const {
        return *std::ranges::find(parameters_.all(), name, &Parameter::name);
    }
    std::vector<float> set(const Tensor& tensor, std::uint64_t seed) {
        const auto values = random_values(tensor.elements(), seed);
        device().upload(values.data(), tensor);
        return values;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, LowRankTest, ::testing::Values("cpu", "cuda"),
                         [](const auto& one) { return one.param; });

// W + alpha / rank B A in float64.
double sum_at(const std::vector<float>& w, const std::vector<double>& a, const std::vector<double>& b,
              std::size_t output, std::size_t input) {
    double sum = 0;
    for (std::size_t k = 0; k < kRank; ++k) sum += b[output * kRank + k] * a[k * kInputs + input];
    return static_cast<double>(w[output * kInputs + input]) + sum * kAlpha / kRank;
}

TEST_P(LowRankTest, TheComputeCopyIsTheSumAndTheWeightStays) {
    for (const Type type : {Type::f32, Type::bf16}) {
        ParameterSet set_of;
        Parameter& weight = set_of.add("w.weight", {kOutputs, kInputs}, Initial::normal(1));
        set_of.adapt(weight, kRank, kAlpha);
        set_of.place(device(), 3, type);
        const Parameter &a = weight.adapter->a(), &b = weight.adapter->b();
        EXPECT_EQ(a.name, "w.lora_A.weight");
        EXPECT_EQ(b.name, "w.lora_B.weight");
        const auto before = device().values_of<float>(weight.value);
        const double rounding = type == Type::f32 ? 1e-6 : kBfloat16Rounding;
        const auto copy = floats_of(device(), weight.compute_copy);
        for (std::size_t i = 0; i < copy.size(); ++i)
            EXPECT_NEAR(copy[i], before[i], rounding * std::abs(before[i])) << "B begins with zeros";
        const auto drawn = device().values_of<float>(a.value);
        EXPECT_LE(std::ranges::max(drawn), 1 / std::sqrt(8.0f));
        EXPECT_GT(std::ranges::max(drawn), 0.5 / std::sqrt(8.0f));

        const auto some_a = set(a.value, 5), some_b = set(b.value, 6);
        set_of.refresh_compute_copy(device());
        const auto now = floats_of(device(), weight.compute_copy);
        const auto host = merged(before, some_a, some_b, kRank, weight.adapter->scale());
        for (std::size_t i = 0; i < now.size(); ++i) {
            const double right = sum_at(before, widened(some_a), widened(some_b), i / kInputs, i % kInputs);
            EXPECT_NEAR(now[i], right, rounding * 8);
            EXPECT_NEAR(host[i], right, 1e-6);
        }
        EXPECT_EQ(device().values_of<float>(weight.value), before);
    }
}

TEST_P(LowRankTest, GradientsAreTheSlopes) {
    parameters_.adapt(*weight_, kRank, kAlpha);
    parameters_.place(device(), 3);
    const LowRank& adapter = *weight_->adapter;
    const auto w = device().values_of<float>(weight_->value);
    const auto a = set(adapter.a().value, 5), b = set(adapter.b().value, 6);
    const auto d = set(weight_->gradient, 7);  // of the sum
    adapter.backward(device());
    const auto along = [&](const std::vector<double>& some_a, const std::vector<double>& some_b) {
        double loss = 0;
        for (std::size_t i = 0; i < d.size(); ++i)
            loss += static_cast<double>(d[i]) * sum_at(w, some_a, some_b, i / kInputs, i % kInputs);
        return loss;
    };
    expect_slopes([&](const std::vector<double>& at) { return along(at, widened(b)); }, a,
                  device().values_of<float>(adapter.a().gradient), "A");
    expect_slopes([&](const std::vector<double>& at) { return along(widened(a), at); }, b,
                  device().values_of<float>(adapter.b().gradient), "B");
}

ModelShape adapted_shape() {
    ModelShape small = shape();
    small.gpt.lora_rank = 4;
    small.gpt.lora_alpha = 8;
    return small;
}

// As large_model_test.cpp has it of the others.
TEST_P(LowRankTest, GradientsOfGptsAdaptersAreTheSlopesOfItsLoss) {
    for (const bool recompute : {false, true}) {
        ModelShape small = adapted_shape();
        small.gpt.recompute = recompute;
        const auto model = find_model("gpt")->make(small);
        model->place(device(), 1, 3);
        std::vector<std::int32_t> tokens;
        Random random(5, 0);
        for (int i = 0; i < 3 * 16; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(100)));
        const Tensor text = device().copy_of<std::int32_t>(Type::i32, {3, 16}, tokens);
        const Tensor metrics = device().make(Type::f64, {2});
        const auto loss = [&] {
            model->parameters().refresh_compute_copy(device());
            device().zero(metrics);
            model->forward_backward({text, text, {}}, 1, metrics);
            return device().values_of<double>(metrics)[0] / 16;
        };
        for (const Parameter& one : model->parameters().all())  // B of zeros would hide A's
            if (one.name.ends_with("lora_B.weight")) set(one.value, one.number);
        loss();
        std::size_t checked = 0;
        for (const Parameter& one : model->parameters().all()) {
            if (!one.is_adapter) continue;
            ++checked;
            EXPECT_FALSE(one.is_frozen);
            loss();
            const auto kept = device().values_of<float>(one.value),
                       gradient = device().values_of<float>(one.gradient);
            double squares = 0;
            for (const float number : gradient)
                squares += static_cast<double>(number) * static_cast<double>(number);
            const double norm = std::sqrt(squares), step = std::min(1e-3 / norm, 0.05);
            ASSERT_GT(norm, 2e-3) << one.name;
            const auto moved = [&](double by) {
                auto values = kept;
                for (std::size_t i = 0; i < values.size(); ++i)
                    values[i] += static_cast<float>(by * static_cast<double>(gradient[i]) / norm);
                device().upload(values.data(), one.value);
                return loss();
            };
            const double slope = (moved(step) - moved(-step)) / (2 * step);
            device().upload(kept.data(), one.value);
            EXPECT_NEAR(slope / norm, 1, 0.03) << one.name << ", gradient " << norm;
        }
        EXPECT_EQ(checked, 4u);
    }
}

class AdaptedTraining : public ::testing::Test {
 protected:
    const Scratch scratch_;
    const Dataset data_ = random_text(32, 16, 100);

    Settings settings(std::int64_t steps, const std::string& directory) const {
        Settings settings;
        settings.epochs = std::nullopt;
        settings.max_steps = steps;
        settings.batch = 4;
        settings.rate.rate = 1e-2;
        settings.checkpoints.directory = scratch_ / directory;
        return settings;
    }
    std::vector<RankOf> train(const Settings& settings, std::int64_t ranks = 2) const {
        return train_saved(ranks, settings, {}, data_, "gpt", adapted_shape());
    }
};

TEST_F(AdaptedTraining, LearnsTheAdaptersAloneAndGoesOnWithTheSameBits) {
    const Outcome whole = outcome_of(train(settings(8, "whole")));
    outcome_of(train(settings(3, "parted")));
    const Outcome rest = outcome_of(train(settings(8, "parted")));
    EXPECT_EQ(rest.resumed, 3);
    EXPECT_EQ(rest.parameters_hash, whole.parameters_hash);
    Settings sharded = settings(8, "sharded");
    sharded.shard_optimizer = true;
    EXPECT_EQ(outcome_of(train(sharded)).parameters_hash, whole.parameters_hash);
    const auto device = open_cpu(1);
    const auto model = make_language_model(adapted_shape().gpt);
    model->place(*device, Settings{}.seed, 1);
    const auto before = model->parameters().download(*device);
    std::size_t at = 0;
    for (const Parameter& one : model->parameters().all()) {
        const auto count = static_cast<std::size_t>(elements_of(one.shape));
        const bool is_same = std::memcmp(&before[at], &whole.parameters[at], count * sizeof(float)) == 0;
        EXPECT_EQ(is_same, !one.is_adapter) << one.name;
        at += count;
    }
    ModelShape other = adapted_shape();
    other.gpt.lora_alpha = 9;
    EXPECT_THAT(the_error(train_saved(2, settings(9, "whole"), {}, data_, "gpt", other)).message,
                HasSubstr("is of gpt with lora_alpha 8; give --lora-alpha=8"));
}

TEST_F(AdaptedTraining, ExportsWhatItComputes) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        Settings how = settings(6, std::string(name_of(precision)));
        how.precision = precision;
        const Outcome trained = outcome_of(train(how, 1));
        const auto saved = open_saved_model("--checkpoint", how.checkpoints.directory);
        ASSERT_TRUE(saved) << saved.error().message;
        const auto device = open_cpu(1);
        SingleCommunicator alone;
        auto evaluation = SavedModelEvaluation::make(*saved, precision, *device);
        ASSERT_TRUE(evaluation) << evaluation.error().message;
        EXPECT_NEAR(evaluation->test(data_, alone)->loss, trained.last.test_loss, 1e-9);
        const auto output = scratch_ / ("export of " + std::string(name_of(precision)));
        ::testing::internal::CaptureStdout();
        const auto exported = export_model({how.checkpoints.directory, "safetensors", {}, output});
        ::testing::internal::GetCapturedStdout();
        ASSERT_TRUE(exported) << exported.error().message;
        const auto plain = make_language_model(shape().gpt);
        place_model(*plain, how, std::nullopt, *device);
        const auto weights = Gpt2Weights::open(output, shape().gpt, plain->parameters());
        ASSERT_TRUE(weights) << weights.error().message;
        ASSERT_TRUE(weights->load(plain->parameters(), *device));
        // The logits of both, and of the model without its adapters.
        auto& adapted = dynamic_cast<LanguageModel&>(evaluation->model());
        const Tensor tokens =
            device->copy_of<std::int32_t>(Type::i32, {1, 5}, std::vector<std::int32_t>{1, 2, 3, 4, 5});
        const auto unmerged = floats_of(*device, adapted.next_logits(tokens)),
                   once = floats_of(*device, plain->next_logits(tokens));
        for (const Parameter& one : adapted.parameters().all())
            if (one.name.ends_with("lora_B.weight")) device->zero(one.value);
        adapted.parameters().refresh_compute_copy(*device);
        const auto base = floats_of(*device, adapted.next_logits(tokens));
        double furthest = 0, moved = 0;
        for (std::size_t i = 0; i < once.size(); ++i) {
            furthest = std::max(furthest, std::abs(static_cast<double>(once[i] - unmerged[i])));
            moved = std::max(moved, std::abs(static_cast<double>(base[i] - unmerged[i])));
        }
        EXPECT_LT(furthest, precision == Precision::fp32 ? 1e-5 : 0.02);
        EXPECT_GT(moved, 10 * furthest) << "the adapters do nothing, so nothing is seen";
    }
}

TEST(Adapters, BeginFromGpt2sWeightsAndNeedNoStateForThem) {
    const Settings settings;
    const auto device = open_cpu(1);
    const auto whole = make_language_model(shape().gpt), adapted = make_language_model(adapted_shape().gpt);
    const auto before = estimate_memory({*whole, settings, nullptr, 1}),
               after = estimate_memory({*adapted, settings, nullptr, 1});
    EXPECT_LT(after.optimizer, before.optimizer / 20);
    const std::int64_t held = device->memory().held();
    adapted->parameters().place(*device, 1);
    EXPECT_EQ(device->memory().held() - held, after.parameters + after.gradients);
}

TEST(Adapters, AreRefusedWhereTheyCannotBe) {
    const struct {
        std::vector<std::string> words;
        const char* line;  // nullptr: taken
    } cases[] = {
        {{"--lora-rank=8"}, nullptr},
        {{"--lora-rank=8", "--lora-alpha=4"}, nullptr},
        {{"--lora-alpha=4"}, "--lora-alpha scales adapters, and there are none; give --lora-rank, too"},
        {{"--lora-rank=385"}, "--lora-rank 385 is more than --hidden-size, which is 384; give less"},
        {{"--lora-rank=8", "--freeze=*.lora_?"}, "is all of gpt, and leaves nothing to train"},
        {{"--lora-rank=8", "--freeze=h.0"}, nullptr},
        {{"--lora-rank=8", "--freeze=wte"},
         "--freeze=wte: --lora-rank freezes these parameters already; leave out --freeze or --lora-rank"},
    };
    for (const auto& c : cases) {
        auto words = c.words;
        words.emplace_back("--model=gpt");
        const Parsed parsed = parse_options(words);
        ASSERT_TRUE(parsed.options) << parsed.text;
        Options options = completed(*parsed.options, *find_model("gpt"));
        const auto fitted = fit(options, std::nullopt);
        EXPECT_EQ(fitted.has_value(), c.line == nullptr) << words.front();
        if (!fitted && c.line != nullptr) {
            EXPECT_THAT(fitted.error().message, HasSubstr(c.line));
        }
        if (fitted) {
            EXPECT_EQ(options.shape.gpt.lora_alpha, options.gave("--lora-alpha") ? 4 : 16);
        }
    }
}

}  // namespace
}  // namespace dp::trainer
