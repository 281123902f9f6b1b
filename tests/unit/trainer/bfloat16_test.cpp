// SPDX-License-Identifier: Apache-2.0
//
// bfloat16: the conversions of the host by a table, and those of each device against the host's.
#include "trainer/base/bfloat16.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "devices.hpp"
#include "trainer/devices/cpu/bf16_products.hpp"

namespace dp::trainer {
namespace {

float float_of(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

TEST(Bfloat16, IsTheNearestAndOfTwoAsNearTheEvenOne) {
    struct Case {
        std::uint32_t from;
        std::uint16_t to;
        const char* what;
    };
    const Case cases[] = {
        {0x00000000, 0x0000, "0"},
        {0x80000000, 0x8000, "-0"},
        {0x3F800000, 0x3F80, "1"},
        {0xC0490FDB, 0xC049, "-pi"},
        {0x3F807FFF, 0x3F80, "below the middle"},
        {0x3F808000, 0x3F80, "in the middle, down to even"},
        {0x3F808001, 0x3F81, "above the middle"},
        {0x3F818000, 0x3F82, "in the middle, up to even"},
        {0xBF818000, 0xBF82, "the same below 0"},
        {0x3FFFFFFF, 0x4000, "up into the next power of two"},
        {0x7F7F7FFF, 0x7F7F, "the last that stays finite"},
        {0x7F7F8000, 0x7F80, "the first that does not"},
        {0xFF7FFFFF, 0xFF80, "the lowest float"},
        {0x7F800000, 0x7F80, "infinity"},
        {0xFF800000, 0xFF80, "-infinity"},
        {0x00000001, 0x0000, "the smallest denormal"},
        {0x00008000, 0x0000, "a denormal in the middle, to 0"},
        {0x00018000, 0x0002, "a denormal in the middle, up"},
        {0x80430001, 0x8043, "a denormal below 0"},
        {0x007FFFFF, 0x0080, "the largest denormal, to the smallest normal number"},
    };
    for (const auto& c : cases) {
        EXPECT_EQ(to_bfloat16(float_of(c.from)).bits, c.to) << c.what;
    }
}

TEST(Bfloat16, NotANumberStaysThat) {
    for (const std::uint32_t bits : {0x7FC00000u, 0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFF800001u}) {
        const float back = to_float(to_bfloat16(float_of(bits)));
        EXPECT_TRUE(std::isnan(back)) << std::hex << bits;
        EXPECT_EQ(std::signbit(back), bits >> 31 != 0) << std::hex << bits;
    }
}

TEST(Bfloat16, EachOfThemIsAFloatAndComesBack) {
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const Bfloat16 value{static_cast<std::uint16_t>(bits)};
        const float wide = to_float(value);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(to_float(to_bfloat16(wide)))) << std::hex << bits;
        } else {
            EXPECT_EQ(to_bfloat16(wide), value) << std::hex << bits;
        }
    }
}

class ConvertTest : public OnEachDevice {
 protected:
    Tensor make(Type type, std::int64_t count) { return device().make(type, {count}); }
};

TEST_P(ConvertTest, RoundsAsTheHostDoesAndGivesBackTheSame) {
    for (const std::int64_t count : {1, 7, 31, 1000, 300'007}) {
        auto values = random_values(count, 3, -1e3f, 1e3f);
        for (std::int64_t i = 0; i < count; i += 3)  // any bits at all
            values[static_cast<std::size_t>(i)] = float_of(static_cast<std::uint32_t>(i) * 2654435761u);
        const Tensor wide = upload(device(), {count}, values), narrow = make(Type::bf16, count),
                     back = make(Type::f32, count);
        device().convert(wide, narrow);
        device().convert(narrow, back);
        const auto bits = device().values_of<Bfloat16>(narrow);
        const auto floats = device().values_of<float>(back);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::isnan(values[i])) {
                ASSERT_TRUE(std::isnan(to_float(bits[i])) && std::isnan(floats[i])) << i;
            } else {
                ASSERT_EQ(bits[i], to_bfloat16(values[i])) << values[i];
                ASSERT_EQ(floats[i], to_float(bits[i])) << values[i];
            }
        }
    }
}

// Parameters and parts of batches are views.
TEST_P(ConvertTest, OfAViewTouchesNothingElse) {
    const auto values = random_values(100, 4);
    const Tensor wide = upload(device(), {100}, values), narrow = make(Type::bf16, 100);
    device().convert(wide.view(7, {21}), narrow.view(3, {21}));
    const auto bits = device().values_of<Bfloat16>(narrow);
    for (std::size_t i = 0; i < 100; ++i)
        EXPECT_EQ(bits[i], i >= 3 && i < 24 ? to_bfloat16(values[i + 4]) : Bfloat16{0}) << i;
}

TEST_P(ConvertTest, BetweenEqualTypesIsACopy) {
    const auto values = random_values(1001, 5);
    const Tensor wide = upload(device(), {1001}, values), other = make(Type::f32, 1001);
    device().convert(wide, other);
    EXPECT_EQ(device().values_of<float>(other), values);
    const Tensor narrow = make(Type::bf16, 1001), copy = make(Type::bf16, 1001);
    device().convert(wide, narrow);
    device().convert(narrow, copy);
    EXPECT_EQ(device().values_of<Bfloat16>(copy), device().values_of<Bfloat16>(narrow));
}

INSTANTIATE_ON_EACH_DEVICE(ConvertTest);

// The CPU's float32 copies are taken again by the next operation, and counted.
TEST(CpuBfloat16, TakesMemoryForItsLargestOperationOnce) {
    const auto device = open_cpu_with(Bf16Products::on_copies, 1);
    const auto make = [&](std::int64_t rows) { return device->make(Type::bf16, {rows, 64}); };
    const Tensor small = make(10), large = make(1000), result = make(1000), weights = make(64);
    const auto multiply = [&](const Tensor& x) {
        device->linear(x, weights, {}, Activation::none, result.first_rows(x.rows()));
    };
    const std::int64_t tensors = device->memory().held();
    multiply(small);
    EXPECT_EQ(device->memory().held() - tensors, (2 * 10 + 64) * 64 * 4);
    multiply(large);
    const std::int64_t most = device->memory().held() - tensors;
    EXPECT_EQ(most, (2 * 1000 + 64) * 64 * 4);
    for (int i = 0; i < 3; ++i) multiply(i == 1 ? small : large);
    device->gelu(large, result);  // a loop needs no copies
    EXPECT_EQ(device->memory().held() - tensors, most);
    EXPECT_TRUE(device->status());
}

TEST(CpuBfloat16, WithoutThatMemoryTheDeviceIsOutOfMemory) {
    const auto device = open_cpu_with(Bf16Products::on_copies, 1);
    const Tensor x = device->make(Type::bf16, {1000, 1}), y = device->make(Type::bf16, {1000, 1}),
                 w = device->make(Type::bf16, {1, 1});
    device->memory().set_limit(device->memory().held() + 5000);  // enough for one of the two large copies
    device->linear(x, w, {}, Activation::none, y);
    ASSERT_FALSE(device->status());
    EXPECT_EQ(device->status().error().fault, Fault::device);
    device->add(x, y);  // must not crash
}

}  // namespace
}  // namespace dp::trainer
