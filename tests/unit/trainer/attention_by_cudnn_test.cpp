// SPDX-License-Identifier: Apache-2.0
//
// Attention in bf16 by cuDNN on a GPU (devices/cuda/cudnn_attention.hpp), against float64 and twice, whichever way is faster there.
// What it does where cuDNN answers badly is tested on the emulated GPU (cuda_emulator/cudnn_attention_test.cpp).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "attention_in_float64.hpp"
#include "devices.hpp"
#include "slopes.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

constexpr const char* kForward = "attention";
constexpr const char* kGradient = "the gradient of attention";

// As a choice has it: "cudnn 91900". Empty where it is not installed.
std::string cudnn_here() {
    void* const library = dlopen("libcudnn.so.9", RTLD_NOW);
    if (library == nullptr) return "";
    const auto version = reinterpret_cast<std::size_t (*)()>(dlsym(library, "cudnnGetVersion"));
    return version == nullptr ? "" : "cudnn " + std::to_string(version());
}

struct Size {
    std::int64_t sequences, heads, sequence, head;
    std::int64_t rows() const { return sequences * sequence; }
    std::int64_t columns() const { return heads * head; }
    // As a choice has it.
    std::string text() const {
        std::string all;
        for (const std::int64_t number : {sequences, heads, sequence, head})
            all += " " + std::to_string(number);
        return all;
    }
};

// bf16 numbers, as the device and the reference read them.
std::vector<float> rounded(std::int64_t count, std::uint64_t seed, float most) {
    std::vector<float> all = random_values(count, seed, -most, most);
    for (float& one : all) one = to_float(to_bfloat16(one));
    return all;
}

class AttentionByCudnn : public ::testing::Test {
 protected:
    void SetUp() override {
        cudnn_ = cudnn_here();
        auto cuda = open_cuda({});
        if (!cuda && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << cuda.error().message;
        if (!cuda) GTEST_SKIP() << "not run on CUDA: " << cuda.error().message;
        device_ = std::move(*cuda);
    }
    Tensor bf16(Shape shape, const std::vector<float>& values) {
        std::vector<Bfloat16> narrow;
        for (const float value : values) narrow.push_back(to_bfloat16(value));
        return device_->copy_of<Bfloat16>(Type::bf16, std::move(shape), narrow);
    }

    std::unique_ptr<Device> device_;
    std::string cudnn_;
};

// The last one is longer than a tile of cuDNN's, and has GPT-2's heads.
TEST_F(AttentionByCudnn, ComesToTheNumbersOfFloat64AndTheSameBits) {
    int sizes_taken = 0;
    for (const Size& s : {Size{2, 3, 40, 16}, {3, 2, 33, 80}, {1, 1, 20, 128}, {1, 2, 150, 64}}) {
        const auto qkv = rounded(s.rows() * 3 * s.columns(), 1, 2),
                   dy = rounded(s.rows() * s.columns(), 2, 1);
        const Attention a{s.sequence, s.heads};
        const Tensor in = bf16({s.rows(), 3 * s.columns()}, qkv), d_y = bf16({s.rows(), s.columns()}, dy),
                     y = device_->make(Type::bf16, {s.rows(), s.columns()}),
                     sums = device_->make(Type::f32, {s.rows(), s.heads}),
                     d_in = device_->make(Type::bf16, {s.rows(), 3 * s.columns()});
        const auto both_passes = [&] {
            device_->attention(a, in, y, sums);
            device_->attention_backward(a, in, y, sums, d_y, d_in);
        };
        // As `trainer compile` tries it. Where it may be taken, both times are told.
        device_->choices().measure(true);
        both_passes();
        device_->choices().measure(false);
        TunedChoices taken;
        for (const char* pass : {kForward, kGradient}) {
            const auto told = device_->choices().find(pass + s.text());
            ASSERT_TRUE(told) << pass << s.text();
            std::printf("%s%s: %s\n", pass, s.text().c_str(), told->c_str());
            if (told->find(": cuDNN takes ") != std::string::npos) taken.set(pass + s.text(), cudnn_);
            EXPECT_THAT(*told, Not(HasSubstr("its numbers are not those of our kernels")));
            // cuDNN said that it would not.
            EXPECT_THAT(*told, Not(HasSubstr("cuDNN's way is not taken: it gives other bits each time")));
            EXPECT_THAT(*told, Not(HasSubstr("it cannot be run")));
        }
        ASSERT_TRUE(device_->status()) << device_->status().error().message;
        if (taken.all().empty()) continue;
        ++sizes_taken;
        device_->adopt(taken);
        both_passes();
        const std::vector<std::int32_t> starts(qkv.size(), 0);
        const auto columns = static_cast<std::size_t>(s.columns());
        const auto first_y = floats_of(*device_, y), first_d = floats_of(*device_, d_in);
        // Weights are rounded to bf16 as well, as our kernels' are.
        expect_close(first_y, attention(a, widened(qkv), columns, starts), kBfloat16Rounding, "attention",
                     kBfloat16Rounding);
        expect_close(first_d, attention_slopes(a, widened(qkv), widened(dy), columns, starts),
                     slope_tolerance(Type::bf16), "gradient");
        both_passes();
        EXPECT_EQ(floats_of(*device_, y), first_y) << "the same bits" << s.text();
        EXPECT_EQ(floats_of(*device_, d_in), first_d) << "the same bits" << s.text();
        ASSERT_TRUE(device_->status()) << device_->status().error().message;
    }
    if (sizes_taken == 0) GTEST_SKIP() << "no size by cuDNN on this GPU, see above";
}

}  // namespace
}  // namespace dp::trainer
