// SPDX-License-Identifier: Apache-2.0
//
// The charts of profile_page.cpp, as inline SVG. What is drawn has a look: a colour and a pattern of its own, by the name of a Part
// or "between".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/profile/profile.hpp"

namespace dp::trainer {

struct BarPiece {
    std::string_view look;
    double value;
};

// The patterns and the rules of CSS that the others need, once in a page.
std::string look_patterns();
std::string look_rules();
std::string_view look_of(MemoryKind kind);

// Before a name in a legend: the look with the letter that charts have where there is no room for the name.
std::string swatch(std::string_view look, std::string_view name);
// In a cell of a table, which says the same in numbers; `whole` is as wide as the cell.
std::string cell_bar(const std::vector<BarPiece>& pieces, double whole);
// Parts of a step, and what is between operations.
std::string step_bar(const Profile& profile);
// "" where the peaks are not known or no operation multiplies.
std::string roofline_chart(const Profile& profile);
// These two: of a curve that has an operation at least. The chart's label leaves out what it has no room for.
std::string peak_text(const MemoryProfile& memory);
std::string memory_chart(const MemoryProfile& memory);

// What is drawn of a run of neighbours in the curve, up to `end`: the one with the most memory.
struct CurvePoint {
    std::size_t operation, end;
};
std::vector<CurvePoint> thinned(const MemoryProfile& memory, std::size_t most);

}  // namespace dp::trainer
