// SPDX-License-Identifier: Apache-2.0
//
// A process that starts with closed streams, or whose output has no room. Each case runs in its own process.
#include "trainer/base/standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "scratch.hpp"
#include "trainer/reports/metrics_file.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/reports/tensorboard.hpp"

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

// "trainer ... | head -1" of a training that writes files.
TEST(StandardStreams, WhereTheReaderHasLeftTheRestIsDone) {
    const auto print_to_nobody = [](bool outlives) {
        std::array<int, 2> ends{};
        if (::pipe(ends.data()) != 0) std::_Exit(1);
        ::dup2(ends[1], STDOUT_FILENO);
        ::close(ends[0]);
        std::signal(SIGPIPE, SIG_DFL);
        if (outlives) outlive_readers();
        Report(true, false).line("an epoch");
        print_if_possible(stdout, "the summary");
        std::_Exit(all_is_printed() ? 2 : 3);
    };
    EXPECT_EXIT(print_to_nobody(true), testing::ExitedWithCode(2), "");
    EXPECT_EXIT(print_to_nobody(false), testing::KilledBySignal(SIGPIPE), "");
}

// fmt throws it until version 10. Whatever else a library throws is said in its words.
TEST(StandardStreams, AThrowForWantOfRoomIsTheUsersToMend) {
    const auto print_and_throw = [](const char* place) {
        if (std::freopen(place, "w", stdout) == nullptr) std::_Exit(1);
        try {
            if (std::puts("the summary") < 0 || std::fflush(stdout) != 0)
                throw std::system_error(errno, std::generic_category(), "cannot write to file");
            throw std::runtime_error("something else");
        } catch (const std::exception& error) {
            const Error said = error_of(error);
            fmt::print(stderr, "{}: {}", static_cast<int>(said.fault), said.message);
        }
        std::_Exit(0);
    };
    EXPECT_EXIT(print_and_throw("/dev/full"), testing::ExitedWithCode(0),
                "^2: cannot write to standard output");
    EXPECT_EXIT(print_and_throw("/dev/null"), testing::ExitedWithCode(0), "^5: something else$");
}

// A job's output is often on the disk of which it is said that it is full.
TEST(StandardStreams, ATrainingThatCannotSayWhatIsWrongGoesOn) {
    const Scratch scratch;
    const auto go_on = [&] {
        if (std::freopen("/dev/full", "w", stdout) == nullptr ||
            std::freopen("/dev/full", "w", stderr) == nullptr)
            std::_Exit(1);
        auto metrics = MetricsFile::open(scratch / "metrics", "run", {{"model", "cnn"}});
        auto board = TensorBoard::open(scratch.path(), 1, 1);
        signal(SIGXFSZ, SIG_IGN);
        const rlimit full{0, 0};
        if (!metrics || !board || setrlimit(RLIMIT_FSIZE, &full) != 0) std::_Exit(1);
        (*metrics)->on_epoch({}, {});
        (*board)->on_epoch({}, {});
        Report report(true, true, LogStyle::plain);
        report.warning("there are several tasks");
        report.on_step(1, 1, {1, 1, 1, 1});
        report.line(std::string(100'000, 'x'));
        report.on_checkpoint({1, "here", 0, {}, "no room"});
        std::_Exit(all_is_printed() ? 2 : 3);
    };
    EXPECT_EXIT(go_on(), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace dp::trainer
