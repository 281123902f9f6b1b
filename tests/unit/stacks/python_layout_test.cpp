// SPDX-License-Identifier: Apache-2.0
#include "stacks/python_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace dp::stacks {
namespace {

using Table = std::array<uint64_t, kDebugOffsets>;
using testing::HasSubstr;

// As Debian's 3.13.5 and 3.14.10 carry it.
Table of_3_13() {
    return {kDebugCookie, 0x30d05f0, 0,    283376, 608,  632,  194976, 7272, 7264, 7344, 7400, 7656, 7640,
            7648,         16,        7752, 0,      7768, 7760, 304,    0,    8,    16,   72,   152,  160,
            232,          32,        80,   8,      0,    56,   72,     70,   208,  112,  120,  128,  136,
            68,           52,        96,   104,    200,  16,   8,      416,  24,   88,   168,  32,   24,
            16,           40,        24,   16,     48,   32,   40,     24,   16,   32,   16,   24,   40,
            16,           32,        64,   32,     16,   40,   240,    200};
}
Table of_3_14() {
    return {kDebugCookie, 0x30e0af0, 0,   316616, 784, 808,  225864, 7280, 7272, 7344, 7360, 7408, 7688,
            7672,         7680,      16,  7784,   0,   7800, 7792,   7992, 0,    832,  0,    8,    16,
            72,           152,       160, 232,    32,  88,   8,      0,    56,   80,   74,   64,   0,
            216,          112,       120, 128,    136, 68,   52,     96,   104,  208,  0,    16,   8,
            416,          24,        88,  168,    40,  32,   16,     40,   24,   16,   200,  24,   40,
            32,           48,        32,  40,     24,  16,   32,     16,   24,   40,   16,   32,   64,
            32,           16,        40,  264};
}

TEST(PythonLayout, IsReadFromTheTableOfThe313) {
    const auto layout = layout_of_table(of_3_13());
    ASSERT_TRUE(layout) << layout.error().message;
    EXPECT_EQ(layout->runtime.first_interpreter, 632U);
    EXPECT_EQ(layout->interpreter.next, 7264U);
    EXPECT_EQ(layout->interpreter.first_thread, 7344U);
    EXPECT_EQ(layout->thread.native_id, 160U);
    EXPECT_EQ(layout->frame.owner, 70U);
    EXPECT_EQ(layout->code.instructions, 200U);
    EXPECT_EQ(layout->bytes.content, 32U);
    EXPECT_EQ(layout->text.state, 32U);
}

TEST(PythonLayout, IsReadFromTheTableOfThe314) {
    const auto layout = layout_of_table(of_3_14());
    ASSERT_TRUE(layout) << layout.error().message;
    EXPECT_EQ(layout->runtime.first_interpreter, 808U);
    EXPECT_EQ(layout->interpreter.first_thread, 7344U);
    EXPECT_EQ(layout->thread.frame, 72U);
    EXPECT_EQ(layout->frame.owner, 74U);
    EXPECT_EQ(layout->code.instructions, 208U);
    EXPECT_EQ(layout->text.length, 16U);
    EXPECT_EQ(layout->text.ascii, 40U);
    EXPECT_EQ(layout->bytes.size, 16U);
}

TEST(PythonLayout, OfWhatIsNotKnownIsRefused) {
    Table table = of_3_14();
    table[1] = 0x30f0000;
    EXPECT_THAT(layout_of_table(table).error().message, HasSubstr("Python 3.15 is not supported"));
    table = of_3_14();
    table[2] = 1;
    EXPECT_THAT(layout_of_table(table).error().message, HasSubstr("free-threaded"));
    table[0] = 0;
    EXPECT_FALSE(layout_of_table(table));
    for (const PythonVersion version : {PythonVersion{3, 8}, {3, 13}, {2, 7}, {4, 9}})
        EXPECT_THAT(layout_of_version(version).error().message, HasSubstr("3.9 to 3.14 are"));
    for (const unsigned minor : {9, 10, 11, 12}) EXPECT_TRUE(layout_of_version({3, minor})) << minor;
}

}  // namespace
}  // namespace dp::stacks
