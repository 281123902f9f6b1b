// SPDX-License-Identifier: Apache-2.0
//
// Attention by cuDNN instead of by our kernels (devices/cuda/cudnn_attention.hpp), on the emulated GPU, whose cuDNN computes the
// graph that it is given: the numbers are those of our kernels, whatever cuDNN may answer. And what is decided about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../devices.hpp"
#include "trainer/devices/cuda/cudnn_attention_choice.hpp"
#include "trainer/devices/step_capture.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kAnswers = "DP_CUDA_EMULATOR_ATTENTION";

struct Numbers {
    std::vector<float> y, sums, d_qkv;
};

class CudnnAttentionTest : public ::testing::Test {
 protected:
    void SetUp() override {
        auto cuda = open_cuda({});
        if (!cuda && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << cuda.error().message;
        if (!cuda) GTEST_SKIP() << "not run on CUDA: " << cuda.error().message;
        device_ = std::move(*cuda);
    }
    void TearDown() override {
        unsetenv(kAnswers);
        if (device_) {
            EXPECT_TRUE(device_->status()) << device_->status().error().message;
        }
    }
    Device& device() { return *device_; }
    void reopen() { device_ = std::move(*open_cuda({})); }

    // The forward and the backward pass.
    Numbers attend(const AttentionShape& s, Attention a = {}) {
        const std::int64_t rows = s.sequences * s.sequence, columns = s.heads * s.size;
        a.sequence = s.sequence;
        a.heads = a.all_heads = s.heads;
        const Tensor qkv = bf16({rows, 3 * columns}, 1, 2), dy = bf16({rows, columns}, 2, 1);
        const Tensor y = device().make(Type::bf16, {rows, columns}),
                     d_qkv = device().make(Type::bf16, {rows, 3 * columns}),
                     sums = device().make(Type::f32, {rows, s.heads});
        device().attention(a, qkv, y, sums);
        device().attention_backward(a, qkv, y, sums, dy, d_qkv);
        return {floats_of(device(), y), floats_of(device(), sums), floats_of(device(), d_qkv)};
    }
    Numbers measured(const AttentionShape& s, Attention a = {}) {
        device().choices().measure(true);
        const Numbers numbers = attend(s, a);
        device().choices().measure(false);
        return numbers;
    }
    // As if this had been chosen for both passes.
    static TunedChoices chosen(const AttentionShape& s, const std::string& choice) {
        std::string numbers;
        for (const std::int64_t number : {s.sequences, s.heads, s.sequence, s.size})
            numbers += " " + std::to_string(number);
        TunedChoices choices;
        for (const char* pass : {"attention", "the gradient of attention"})
            choices.set(pass + numbers, choice);
        return choices;
    }
    static std::string cudnns() { return "cudnn " + std::to_string(CUDNN_VERSION); }

 private:
    std::unique_ptr<Device> device_;

    Tensor bf16(Shape shape, std::uint64_t seed, float most) {
        std::vector<Bfloat16> numbers;
        for (const float number : random_values(shape[0] * shape[1], seed, -most, most))
            numbers.push_back(to_bfloat16(number));
        return device().copy_of<Bfloat16>(Type::bf16, std::move(shape), numbers);
    }
};

void expect_alike(const Numbers& one, const Numbers& other, const std::string& what) {
    const auto doubles = [](const std::vector<float>& all) {
        return std::vector<double>(all.begin(), all.end());
    };
    expect_close(one.y, doubles(other.y), 0x1p-7, what + ", y");
    expect_close(one.sums, doubles(other.sums), 1e-5, what + ", sums");
    expect_close(one.d_qkv, doubles(other.d_qkv), 0x1p-7, what + ", d_qkv");
}
bool are_same(const Numbers& one, const Numbers& other) {
    return one.y == other.y && one.sums == other.sums && one.d_qkv == other.d_qkv;
}

TEST_F(CudnnAttentionTest, ComesToTheNumbersOfOurKernels) {
    // The last one's backward pass has room for two of four sequences at a time.
    for (const AttentionShape& shape : {AttentionShape{1, 1, 1, 8},
                                        {2, 3, 40, 16},
                                        {3, 2, 33, 80},
                                        {1, 1, 70, 64},
                                        {1, 1, 20, 128},
                                        {4, 96, 3, 8}}) {
        const std::string what = "of " + std::to_string(shape.sequence);
        reopen();
        const Numbers ours = attend(shape);
        reopen();
        device().adopt(chosen(shape, cudnns()));
        const Numbers theirs = attend(shape);
        expect_alike(theirs, ours, what);
        EXPECT_TRUE(are_same(attend(shape), theirs)) << what;
        // That it was cuDNN's.
        setenv(kAnswers, "wrong", 1);
        const Numbers wrong = attend(shape);
        unsetenv(kAnswers);
        EXPECT_GT(std::abs(wrong.y[0] - ours.y[0]), 50) << what;
        EXPECT_NE(wrong.d_qkv, ours.d_qkv) << what;
    }
}

// Whichever is faster here.
TEST_F(CudnnAttentionTest, IsMeasured) {
    constexpr AttentionShape kShape{2, 3, 40, 16};
    const Numbers ours = attend(kShape);
    reopen();
    expect_alike(measured(kShape), ours, "measured");
    EXPECT_EQ(device().choices().all().size(), 2U);
    for (const auto& [what, choice] : device().choices().all()) {
        EXPECT_TRUE(chosen(kShape, "").find(what)) << what;
        EXPECT_THAT(choice, AnyOf(StartsWith("ours: cuDNN takes "), StartsWith(cudnns() + ": cuDNN takes ")));
        EXPECT_THAT(choice, HasSubstr(" ms, our kernels "));
    }
}

TEST_F(CudnnAttentionTest, IsNotTakenWhereItCannotBeTrusted) {
    constexpr AttentionShape kShape{2, 3, 40, 16};
    const Numbers ours = attend(kShape);
    struct Case {
        const char *answers, *why;
    };
    for (const auto& [answers, why] : {Case{"none", "cuDNN has no engine for it"},
                                       {"fails", "cuDNN has no engine for it"},
                                       {"large", "cuDNN's engines need a workspace of 8589934592 bytes"},
                                       {"wrong", "its numbers are not those of our kernels (they differ by "},
                                       {"changing", "it gives other bits each time"},
                                       {"noted", "cuDNN says that it may give other bits each time"},
                                       {"breaks", "it cannot be run"}}) {
        reopen();
        setenv(kAnswers, answers, 1);
        EXPECT_TRUE(are_same(measured(kShape), ours)) << answers;
        EXPECT_EQ(device().choices().all().size(), 2U) << answers;
        for (const auto& [what, choice] : device().choices().all()) {
            EXPECT_THAT(what, HasSubstr("attention 2 3 40 16")) << answers;
            EXPECT_THAT(choice, StartsWith(std::string("ours: cuDNN's way is not taken: ") + why)) << what;
        }
        EXPECT_TRUE(are_same(attend(kShape), ours)) << answers;
        EXPECT_TRUE(device().status()) << answers;
        unsetenv(kAnswers);
    }
}

TEST_F(CudnnAttentionTest, IsOnlyWhatWasChosen) {
    constexpr AttentionShape kShape{2, 3, 40, 16};
    const Numbers ours = attend(kShape);
    setenv(kAnswers, "wrong", 1);
    for (const char* choice : {"ours", "ours: why", "cudnn 1", "", "x"}) {
        reopen();
        device().adopt(chosen(kShape, choice));
        EXPECT_TRUE(are_same(attend(kShape), ours)) << choice;
    }
}

// Not by our kernels: this rank would be slower than the others, and a resumed training would come to other bits.
TEST_F(CudnnAttentionTest, ThatWasChosenAndCannotBeEndsTheTraining) {
    constexpr AttentionShape kShape{2, 3, 40, 16};
    for (const char* answers : {"none", "fails", "large", "noted"}) {
        setenv(kAnswers, answers, 1);
        reopen();
        device().adopt(chosen(kShape, cudnns()));
        attend(kShape);
        ASSERT_FALSE(device().status()) << answers;
        EXPECT_THAT(device().status().error().message,
                    AllOf(HasSubstr("`trainer compile` chose cuDNN for attention, and now "),
                          HasSubstr("; compile again with --force")))
            << answers;
    }
    reopen();
}

TEST_F(CudnnAttentionTest, IsNotAskedForWhatItIsNotBuiltFor) {
    const Tensor starts = device().copy_of<std::int32_t>(Type::i32, {80}, std::vector<std::int32_t>(80, 0));
    Attention drops{}, documents{};
    drops.dropout = {0.5f, 7, 10};
    documents.starts = starts.data<std::int32_t>();
    measured({2, 3, 40, 16}, drops);
    measured({2, 3, 40, 16}, documents);
    measured({2, 3, 40, 20});
    EXPECT_TRUE(device().choices().all().empty());
}

TEST_F(CudnnAttentionTest, IsPartOfTheGraphOfAStep) {
    constexpr AttentionShape kShape{2, 3, 40, 16};
    reopen();
    device().adopt(chosen(kShape, cudnns()));
    const Numbers once = attend(kShape);
    auto* const capture = dynamic_cast<StepCapture*>(&device());
    ASSERT_NE(capture, nullptr);
    capture->set_capture(true);
    const std::int64_t rows = 80, columns = 48;
    const Attention a{kShape.sequence, kShape.heads};
    std::vector<Bfloat16> numbers;
    for (const float number : random_values(rows * 3 * columns, 1, -2, 2))
        numbers.push_back(to_bfloat16(number));
    const Tensor qkv = device().copy_of<Bfloat16>(Type::bf16, {rows, 3 * columns}, numbers),
                 y = device().make(Type::bf16, {rows, columns}),
                 again = device().make(Type::bf16, {rows, columns}),
                 sums = device().make(Type::f32, {rows, kShape.heads});
    for (int step = 0; step < 5; ++step) {
        const MarkedStep marked(capture);
        device().zero(y);
        device().attention(a, qkv, y, sums);
        device().attention(a, qkv, again, sums);
    }
    EXPECT_EQ(capture->refusal(), "");
    EXPECT_EQ(floats_of(device(), y), once.y);
    EXPECT_EQ(floats_of(device(), again), once.y);
}

TEST(CudnnAttentionChoice, TakesAsManySequencesAsDivideThemAndHaveRoom) {
    constexpr std::int64_t kOfH100 = 2 * 132 * 1024 * (64 * 4 + 16);
    struct Case {
        AttentionShape shape;
        std::int64_t most, sequences;
    };
    for (const auto& [shape, most, sequences] : {Case{{64, 12, 1024, 64}, kOfH100, 2},
                                                 {{63, 12, 1024, 64}, kOfH100, 1},
                                                 {{64, 12, 1024, 64}, std::int64_t{1} << 40, 64},
                                                 {{7, 12, 512, 64}, kOfH100, 7},
                                                 {{8, 12, 4096, 64}, kOfH100, 0},
                                                 {{4, 96, 3, 8}, 8 << 20, 2},
                                                 {{1, 1, 1, 8}, 1000, 0}})
        EXPECT_EQ(sequences_at_a_time(shape, most), sequences) << shape.sequences << ", " << shape.sequence;
}

TEST(CudnnAttentionChoice, TakesNumbersThatDifferByRoundingAlone) {
    const auto holds = [](const std::vector<float>& ours, const std::vector<float>& others) {
        Agreement agreement(1.0 / 64);
        for (std::size_t i = 0; i < ours.size(); ++i) agreement.add(ours[i], others[i]);
        return agreement.holds();
    };
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                    kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(holds({}, {}));
    EXPECT_TRUE(holds({0, 0}, {0, 0}));
    EXPECT_TRUE(holds({1, -2, 3}, {1.01f, -2.01f, 3.01f}));
    EXPECT_FALSE(holds({1, -2, 3}, {1.1f, -2, 3}));
    EXPECT_FALSE(holds({0, 0}, {0, 1e-9f}));
    EXPECT_FALSE(holds({1, 2}, {1, kNan}));
    EXPECT_FALSE(holds({1, kNan}, {1, kNan}));
    EXPECT_FALSE(holds({1, kInfinity}, {1, kInfinity}));
    std::vector<float> many(10000, 1), one_off = many;
    one_off[77] = 1.5f;
    EXPECT_FALSE(holds(many, one_off)) << "a single number, which the whole hardly shows";
    one_off[77] = 1.05f;
    EXPECT_TRUE(holds(many, one_off));
}

}  // namespace
}  // namespace dp::trainer
