// SPDX-License-Identifier: Apache-2.0
//
// For tables of facts and what a check finds in them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "findings/finding.hpp"

namespace dp::doctor {

template <typename Found>
Found finding_of(const std::vector<Found>& all, const std::string& check) {
    for (const Found& one : all)
        if (one.check == check) return one;
    ADD_FAILURE() << "no check " << check;
    return {};
}

// Names of the checks that are not ok.
template <typename Found>
std::vector<std::string> complaints(const std::vector<Found>& all) {
    std::vector<std::string> names;
    for (const Found& one : all)
        if (one.level != Level::ok) names.push_back(one.check);
    return names;
}

// One thing that is wrong with a healthy machine: that check says so, and no other.
template <typename Facts>
struct Planted {
    std::function<void(Facts&)> plant;
    std::string check;
    Level level;
    std::string seen, remedy;  // parts of them
};

template <typename Facts>
void expect_found(const std::vector<Planted<Facts>>& table, const Facts& healthy,
                  const std::function<Findings(const Facts&)>& check) {
    EXPECT_EQ(complaints(check(healthy)), std::vector<std::string>());
    for (const auto& [plant, name, level, seen, remedy] : table) {
        Facts facts = healthy;
        plant(facts);
        const Findings found = check(facts);
        EXPECT_EQ(complaints(found), std::vector<std::string>{name}) << seen;
        const Finding one = finding_of(found, name);
        EXPECT_EQ(one.level, level) << seen;
        EXPECT_THAT(one.seen, testing::HasSubstr(seen));
        EXPECT_THAT(one.remedy, testing::HasSubstr(remedy));
        EXPECT_FALSE(one.why.empty()) << seen;
    }
}

}  // namespace dp::doctor
