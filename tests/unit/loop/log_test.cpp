// SPDX-License-Identifier: Apache-2.0
#include "loop/log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace dp {
namespace {

std::string printed(const std::function<void(RejectedPeers&)>& what) {
    testing::internal::CaptureStderr();
    RejectedPeers log("node01");
    what(log);
    log.summary();
    return testing::internal::GetCapturedStderr();
}

TEST(RejectedPeers, ThreeLinesThenACount) {
    EXPECT_EQ(printed([](RejectedPeers& log) {
                  for (int i = 0; i < 1000; ++i) log.mention("a connection", "it is silent");
              }),
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: 997 more unwanted connections were closed\n");
}

TEST(RejectedPeers, ANewReasonIsSaidHoweverManyCameBefore) {
    EXPECT_EQ(printed([](RejectedPeers& log) {
                  for (int i = 0; i < 5; ++i) log.mention("a connection", "it is silent");
                  log.mention("another", "it lies");
                  log.mention("another", "it lies");
              }),
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: closed a connection: it is silent\n"
              "slurm-dp: closed another: it lies\n"
              "slurm-dp: 3 more unwanted connections were closed\n");
}

TEST(RejectedPeers, ReasonsAreNotWithoutEnd) {
    const std::string out = printed([](RejectedPeers& log) {
        for (int i = 0; i < 100; ++i) log.mention("a connection", "reason " + std::to_string(i));
    });
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 9) << out;
    EXPECT_NE(out.find("slurm-dp: 92 more unwanted connections were closed\n"), std::string::npos) << out;
}

TEST(RejectedPeers, NothingHappenedNothingSaid) {
    EXPECT_EQ(printed([](RejectedPeers&) {}), "");
}

}  // namespace
}  // namespace dp
