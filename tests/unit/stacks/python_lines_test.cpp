// SPDX-License-Identifier: Apache-2.0
#include "stacks/python_lines.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dp::stacks {
namespace {

using Bytes = std::vector<int>;

std::string table(const Bytes& bytes) {
    return {bytes.begin(), bytes.end()};
}

struct Case {
    int64_t at;
    uint32_t line;
};

void expect(LineTable kind, const Bytes& bytes, uint32_t first_line, const std::vector<Case>& cases) {
    for (const auto& [at, line] : cases)
        EXPECT_EQ(line_of(kind, table(bytes), first_line, at), line) << "at " << at;
}

// The example of lnotab_notes.txt: 0 1, 6 2, 50 7, 350 207, 361 208 (bytes and lines from 1 on).
TEST(PythonLines, By39sIncrements) {
    expect(LineTable::increments, {6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 11, 1}, 1,
           {{0, 1}, {5, 1}, {6, 2}, {49, 2}, {50, 7}, {349, 7}, {350, 207}, {361, 208}, {100000, 208}});
    expect(LineTable::increments, {4, 3, 2, -2}, 10, {{3, 10}, {4, 13}, {6, 11}});
}

TEST(PythonLines, By310sRanges) {
    expect(LineTable::ranges, {0, 0, 6, 1, 44, 5, 4, -128, 2, -3}, 10,
           {{-2, 10}, {0, 11}, {5, 11}, {6, 16}, {50, 0}, {53, 0}, {54, 13}, {56, 0}});
}

// Kinds: 0 to 9 have a byte more, 10 to 12 two, 13 a number, 14 four numbers, 15 none.
TEST(PythonLines, By311sLocations) {
    const auto first = [](int kind, int instructions) { return 128 | kind << 3 | (instructions - 1); };
    expect(
        LineTable::locations,
        {first(0, 1), 5, first(11, 2), 1, 9, first(13, 1), 7, first(14, 8), 66, 1, 1, 2, 3, first(15, 1)},
        100,
        {{-2, 100}, {0, 100}, {1, 100}, {2, 101}, {5, 101}, {6, 98}, {8, 131}, {23, 131}, {24, 0}, {26, 0}});
}

// What a process that changes meanwhile, or that wants to do harm, may show. (The sanitizers watch.)
TEST(PythonLines, NonsenseDoesNoHarm) {
    for (const auto kind : {LineTable::increments, LineTable::ranges, LineTable::locations})
        for (const Bytes& bytes :
             {Bytes{}, Bytes{255}, Bytes{255, 255, 255}, Bytes(1000, 255), Bytes(7, 240)})
            for (const int64_t at : {int64_t{0}, int64_t{99}, INT64_MAX}) {
                const uint32_t line = line_of(kind, table(bytes), 5, at);
                EXPECT_LE(line, 100'000U) << bytes.size() << " bytes, at " << at;
            }
    // Each entry the largest number that there is.
    std::string large;
    for (int i = 0; i < 100'000; ++i) large += "\xef\x7f\x7f\x7f\x7f\x7f\x7f\x7e";
    EXPECT_EQ(line_of(LineTable::locations, large, 5, INT64_MAX), 0U);
    EXPECT_EQ(line_of(LineTable::increments, table({2, -100}), 5, 4), 0U);
}

}  // namespace
}  // namespace dp::stacks
