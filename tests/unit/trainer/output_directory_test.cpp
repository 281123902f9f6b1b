// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/output_directory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

TEST(OutputDirectory, IsRemovedWithAllThatWasMadeForIt) {
    const Scratch scratch;
    { ASSERT_TRUE(OutputDirectory::open(scratch.path() / "new/data")); }
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(OutputDirectory, StaysWhereItWasOrIsKept) {
    const Scratch scratch;
    fs::create_directory(scratch.path() / "old");
    {
        auto output = OutputDirectory::open(scratch.path() / "old/data");
        ASSERT_TRUE(output);
    }
    EXPECT_TRUE(fs::exists(scratch.path() / "old"));
    EXPECT_FALSE(fs::exists(scratch.path() / "old/data"));
    {
        auto output = OutputDirectory::open(scratch.path() / "old/data");
        ASSERT_TRUE(output);
        output->keep();
    }
    EXPECT_TRUE(fs::exists(scratch.path() / "old/data"));
}

// A process that comes while the one before it is removing finds the upper directory and makes its own in it;
// of neither anything may be left.
TEST(OutputDirectory, IsRemovedAfterAnotherProcessThatGivesUp) {
    const Scratch scratch;
    auto first = OutputDirectory::open(scratch.path() / "new/data");
    ASSERT_TRUE(first);
    std::optional<OutputDirectory> mine(std::move(*first));
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
