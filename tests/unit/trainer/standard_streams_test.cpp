// SPDX-License-Identifier: Apache-2.0
//
// A process that was started with closed streams, or whose output has no room. Each case is a process of its
// own.
#include "trainer/standard_streams.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

TEST(StandardStreams, WhatIsPrintedToAClosedOneLandsInNoFile) {
    const Scratch scratch;
    const auto file = scratch / "metrics";
    EXPECT_EXIT(
        {
            ::close(STDIN_FILENO);
            ::close(STDOUT_FILENO);
            hold_standard_streams();
            const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT, 0600);
            std::puts("a line for people");
            std::fflush(stdout);
            std::_Exit(opened > STDERR_FILENO ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_TRUE(std::filesystem::exists(file));
    EXPECT_EQ(contents_of(file), "");
}

TEST(StandardStreams, ThatAreOpenStayAsTheyAre) {
    EXPECT_EXIT(
        {
            hold_standard_streams();
            std::fputs("said", stderr);
            std::_Exit(0);
        },
        testing::ExitedWithCode(0), "said");
}

TEST(StandardStreams, OutputThatHasNoRoomIsAnError) {
    const auto print_to = [](const char* place) {
        if (std::freopen(place, "w", stdout) == nullptr) std::_Exit(1);
        std::puts("the summary");
        std::_Exit(all_is_printed() ? 2 : 3);
    };
    EXPECT_EXIT(print_to("/dev/full"), testing::ExitedWithCode(3), "");
    EXPECT_EXIT(print_to("/dev/null"), testing::ExitedWithCode(2), "");
    // Lines that were flushed before had none either.
    EXPECT_EXIT(
        {
            if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(1);
            std::puts("an epoch");
            std::fflush(stdout);
            std::_Exit(all_is_printed() ? 2 : 3);
        },
        testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace dp::trainer
