// SPDX-License-Identifier: Apache-2.0
//
// Where the records of a job are, by the site's plugstack.conf.
#include "dpctl/site_records.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

TEST(SiteRecords, AreWhereThePluginsLineSays) {
    EXPECT_EQ(
        site_directory({"optional", "/usr/lib/spank_dp.so", "timeout=99", "record=/records/%j"}).value_or(""),
        "/records/%j");
}

TEST(SiteRecords, OfAJobAreFoundByItsNumber) {
    const struct {
        std::string directory, pattern;
    } cases[] = {
        {"/records", "/records"},
        {"/records/%j.%s", "/records/12.*"},
        {"/scratch/%N/100%%", "/scratch/node01/100%"},
        {"/home/a[b]*/%j", "/home/a\\[b]\\*/12"},
    };
    for (const auto& [directory, pattern] : cases)
        EXPECT_EQ(directories_of_job(directory, 12, "node01"), pattern);
}

TEST(SiteRecords, WhatCannotBeFoundIsSaid) {
    const auto why = [](const std::vector<std::string>& line) {
        return site_directory(line).error().message;
    };
    EXPECT_NE(why({}).find("has no record=DIR"), std::string::npos);
    EXPECT_NE(why({"optional", "spank_dp.so", "record=off"}).find("has no record=DIR"), std::string::npos);
    EXPECT_NE(why({"optional", "spank_dp.so", "record=runs/%j"}).find("below each job's working directory"),
              std::string::npos);
}

}  // namespace
}  // namespace dp
