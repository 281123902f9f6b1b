// SPDX-License-Identifier: Apache-2.0
//
// Files that a run leaves at its end: refused before it begins, and never half-written.
#include "trainer/reports/output_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

using ::testing::EndsWith;
namespace fs = std::filesystem;

TEST(OutputFile, WhatCannotBeWrittenIsRefusedBeforehand) {
    const Scratch scratch;
    EXPECT_THAT(refusal_of(can_be_written(scratch / "missing/run.json")),
                EndsWith("missing/run.json: cannot write: No such file or directory"));
    EXPECT_THAT(refusal_of(can_be_written(scratch.path())), EndsWith(": cannot write: Is a directory"));
    EXPECT_TRUE(can_be_written(std::nullopt));
}

TEST(OutputFile, AskingChangesNothing) {
    const Scratch scratch;
    EXPECT_TRUE(can_be_written(scratch / "new"));
    EXPECT_FALSE(fs::exists(scratch / "new"));
    const auto old = scratch.write("old", "of an earlier run");
    EXPECT_TRUE(can_be_written(old));
    EXPECT_EQ(contents_of(old), "of an earlier run");
    EXPECT_TRUE(can_be_written("/dev/null"));
    // Nobody reads it yet.
    ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
    EXPECT_TRUE(can_be_written(scratch / "pipe"));
    EXPECT_TRUE(fs::exists(scratch / "pipe"));
}

TEST(OutputFile, TakesThePlaceOfWhatWasThere) {
    const Scratch scratch;
    const auto file = scratch.write("run.json", "something longer");
    EXPECT_TRUE(write_output(file, "{}\n"));
    EXPECT_EQ(contents_of(file), "{}\n");
    EXPECT_THAT(refusal_of(write_output("/dev/full", "{}\n")), EndsWith("No space left on device"));
    EXPECT_TRUE(fs::exists("/dev/full"));
}

TEST(OutputFile, NothingHalfWrittenStays) {
    const Scratch scratch;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit little{1000, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const auto written = write_output(scratch / "parameters", std::string(5000, 'x'));
    std::signal(SIGXFSZ, handler);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(refusal_of(written), EndsWith("parameters: cannot write: File too large"));
    EXPECT_FALSE(fs::exists(scratch / "parameters"));
}

}  // namespace
}  // namespace dp::trainer
