// SPDX-License-Identifier: Apache-2.0
#include "loop/last_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace dp {
namespace {

using testing::ElementsAre;
using testing::Pair;

class LastWordsTest : public testing::Test {
 protected:
    ~LastWordsTest() override { event_base_free(base_); }

    // The files are words of a shell's script.
    LastWords reader(const std::string& script) {
        return {base_, "node02", {"/bin/sh", "-c", script, "sh"}, on_words_};
    }
    void run_until(size_t told) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (told_.size() < told && std::chrono::steady_clock::now() < end)
            event_base_loop(base_, EVLOOP_ONCE);
    }

    event_base* base_ = event_base_new();
    std::vector<std::pair<uint32_t, std::string>> told_;
    LastWords::OnWords on_words_ = [this](const NodeActions::NcclToRead& of, const std::string& words) {
        told_.emplace_back(of.local_rank, words);
    };
};

TEST_F(LastWordsTest, EachFileHasALine) {
    LastWords words = reader("for file; do echo $file; done");
    words.read({{{3}, "first"}, {{1}, ""}, {{0}, "third"}});
    words.read({{{3}, "again"}});
    EXPECT_TRUE(told_.empty());
    run_until(4);
    std::ranges::sort(told_);
    EXPECT_THAT(told_, ElementsAre(Pair(0, "third"), Pair(1, ""), Pair(3, "again"), Pair(3, "first")));
}

TEST_F(LastWordsTest, AFileThatDoesNotAnswerIsNotWaitedForLong) {
    const auto begin = std::chrono::steady_clock::now();
    LastWords words = reader("echo one; exec sleep 100");
    words.read({{{0}, "a"}, {{1}, "b"}});
    run_until(2);
    EXPECT_THAT(told_, ElementsAre(Pair(0, "one"), Pair(1, "")));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kLastWordsPatience);
    words.reap();
}

TEST_F(LastWordsTest, TooManyWordsAreNotRead) {
    LastWords words = reader("echo one; exec yes two");
    words.read({{{0}, "a"}});
    run_until(1);
    EXPECT_THAT(told_, ElementsAre(Pair(0, "one")));
}

TEST_F(LastWordsTest, AProgramThatCannotBeStartedSaysNothing) {
    LastWords none(base_, "node02", {"/nonexistent/dpctl"}, on_words_);
    testing::internal::CaptureStderr();
    none.read({{{2}, "x"}});
    none.read({{{3}, "x"}});
    EXPECT_THAT(told_, ElementsAre(Pair(2, ""), Pair(3, "")));
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "slurm-dp: cannot read what NCCL has written on node02 (--dp-nccl-debug): /nonexistent/dpctl "
              "cannot be started; in a container, slurm-dp must be installed there, too\n");
}

}  // namespace
}  // namespace dp
