// SPDX-License-Identifier: Apache-2.0
//
// Where the records of a job are, by the site's plugstack.conf.
#include "dpctl/site_records.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

TEST(SiteRecords, AreWhereThePluginsLineSays) {
    const struct {
        std::string word, pattern;
    } cases[] = {
        {"record=/records", "/records/12.*.dprecord"},
        {"record=/records/%j.%s", "/records/12.*/12.*.dprecord"},
        {"record=/scratch/%N/100%%", "/scratch/*/100%/12.*.dprecord"},
    };
    for (const auto& [word, pattern] : cases)
        EXPECT_EQ(
            pattern_of_records({"optional", "/usr/lib/spank_dp.so", "timeout=99", word}, 12).value_or(""),
            pattern);
}

TEST(SiteRecords, WhatCannotBeFoundIsSaid) {
    const auto why = [](const std::vector<std::string>& line) {
        return pattern_of_records(line, 12).error().message;
    };
    EXPECT_NE(why({}).find("has no record=DIR"), std::string::npos);
    EXPECT_NE(why({"optional", "spank_dp.so", "record=off"}).find("has no record=DIR"), std::string::npos);
    EXPECT_NE(why({"optional", "spank_dp.so", "record=runs/%j"}).find("below each job's working directory"),
              std::string::npos);
}

}  // namespace
}  // namespace dp
