// SPDX-License-Identifier: Apache-2.0
//
// Files that a run leaves at its end: refused before it begins, and never half-written.
#include "trainer/base/output_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "scratch.hpp"
#include "small_files.hpp"

namespace dp::trainer {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

TEST(OutputFile, WhatCannotBeWrittenIsRefusedBeforehand) {
    const Scratch scratch;
    EXPECT_THAT(refusal_of(can_be_written("--json", scratch / "missing/run.json")),
                AllOf(StartsWith("--json: "), EndsWith("missing/run.json cannot be written: No such file or "
                                                       "directory; give another file")));
    EXPECT_THAT(refusal_of(can_be_written("--json", scratch.path())), HasSubstr(": Is a directory; give "));
    EXPECT_TRUE(can_be_written("--json", std::nullopt));
    EXPECT_THAT(refusal_of(can_hold_files("--tensorboard", "/proc/x")),
                AllOf(StartsWith("--tensorboard: /proc/x cannot be written: "), EndsWith("; give another "
                                                                                         "directory")));
    EXPECT_THAT(refusal_of(can_hold_files("--tensorboard", "/dev/null")), HasSubstr("Not a directory"));
    EXPECT_TRUE(can_hold_files("--tensorboard", std::nullopt));
    const SmallFiles full(0);
    EXPECT_THAT(refusal_of(can_be_written("--json", scratch / "new")), HasSubstr("File too large"));
    EXPECT_THAT(refusal_of(can_hold_files("--tensorboard", scratch / "a/b")), HasSubstr("File too large"));
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(OutputFile, AskingChangesNothing) {
    const Scratch scratch;
    EXPECT_TRUE(can_be_written("--json", scratch / "new"));
    EXPECT_TRUE(can_hold_files("--tensorboard", scratch / "a/b"));
    EXPECT_TRUE(can_hold_files("--tensorboard", scratch.path()));
    EXPECT_TRUE(fs::is_empty(scratch.path()));
    const auto old = scratch.write("old", "of an earlier run");
    EXPECT_TRUE(can_be_written("--json", old));
    EXPECT_EQ(contents_of(old), "of an earlier run");
    EXPECT_TRUE(can_be_written("--json", "/dev/null"));
    // Nobody reads it yet.
    ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
    EXPECT_TRUE(can_be_written("--json", scratch / "pipe"));
    EXPECT_TRUE(fs::exists(scratch / "pipe"));
    // Where it will be is not there yet.
    fs::create_symlink("elsewhere", scratch / "link");
    EXPECT_TRUE(can_be_written("--json", scratch / "link"));
    EXPECT_TRUE(fs::is_symlink(scratch / "link"));
    EXPECT_FALSE(fs::exists(scratch / "elsewhere"));
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
    const auto written = [&] {
        const SmallFiles full(1000);
        return write_output(scratch / "parameters", std::string(5000, 'x'));
    }();
    EXPECT_THAT(refusal_of(written), EndsWith("parameters: cannot write: File too large"));
    EXPECT_FALSE(fs::exists(scratch / "parameters"));
}

}  // namespace
}  // namespace dp::trainer
