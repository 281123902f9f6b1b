// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/made_directories.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

TEST(MadeDirectories, AreRemovedUnlessTheyWereThereBeforeOrAreKept) {
    const Scratch scratch;
    { EXPECT_FALSE(MadeDirectories().make(scratch.path() / "new/data")); }
    EXPECT_TRUE(fs::is_empty(scratch.path()));
    fs::create_directory(scratch.path() / "old");
    { EXPECT_FALSE(MadeDirectories().make(scratch.path() / "old/data")); }
    EXPECT_TRUE(fs::exists(scratch.path() / "old"));
    EXPECT_FALSE(fs::exists(scratch.path() / "old/data"));
    {
        MadeDirectories made;
        EXPECT_FALSE(made.make(scratch.path() / "old/data"));
        made.keep();
    }
    EXPECT_TRUE(fs::exists(scratch.path() / "old/data"));
}

// A process that comes while the one before it is removing finds the upper directory and makes its own in it;
// of neither anything may be left.
TEST(MadeDirectories, AreRemovedAfterAnotherProcessThatGivesUp) {
    const Scratch scratch;
    std::optional<MadeDirectories> mine(std::in_place);
    ASSERT_FALSE(mine->make(scratch.path() / "new/data"));
    const fs::path others = scratch.path() / "new/others";
    fs::create_directory(others);
    std::jthread gives_up([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        fs::remove(others);
    });
    mine.reset();
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

}  // namespace
}  // namespace dp::trainer
