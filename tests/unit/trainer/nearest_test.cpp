// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/parse.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "trainer/commands/options.hpp"

namespace dp::trainer {
namespace {

TEST(Nearest, IsAFewLettersOffOrLonger) {
    const std::array<std::string, 5> names{"--epochs", "--batch-size", "--json", "--lr", "compile"};
    const auto like = [&](std::string_view word) { return nearest(word, names).value_or("none"); };
    EXPECT_EQ(like("--epoch"), "--epochs");
    EXPECT_EQ(like("--epohcs"), "--epochs");
    EXPECT_EQ(like("--batchsize"), "--batch-size");
    EXPECT_EQ(like("--batch"), "--batch-size");
    EXPECT_EQ(like("--jsn"), "--json");
    EXPECT_EQ(like("-epochs"), "--epochs");
    EXPECT_EQ(like("compiel"), "compile");
    EXPECT_EQ(like("--x"), "none");
    EXPECT_EQ(like("--"), "none");
    EXPECT_EQ(like(""), "none");
    EXPECT_EQ(like("--something-else"), "none");
}

// Theirs is not one of ours, and what is named instead is.
TEST(OursFor, NamesOptionsThatThereAre) {
    Options options;
    const OptionList list = training_options(options);
    std::string all;
    for (const OptionRow& row : list.rows()) all += "," + row.names;
    all += ",";
    for (const char* theirs : {"--learning-rate", "--train-batch-size", "--global-batch-size",
                               "--train-iters", "--save", "--load", "--momentum", "--betas",
                               "--decoder-last-pipeline-num-layers", "--accumulate-grad-batches", "--fp16"}) {
        const auto ours = ours_for(theirs);
        ASSERT_TRUE(ours) << theirs;
        EXPECT_NE(all.find("," + std::string(ours->substr(0, ours->find(' '))) + ","), std::string::npos)
            << *ours;
        EXPECT_EQ(all.find("," + std::string(theirs) + ","), std::string::npos) << theirs;
    }
    EXPECT_FALSE(ours_for("--lr"));
}

}  // namespace
}  // namespace dp::trainer
