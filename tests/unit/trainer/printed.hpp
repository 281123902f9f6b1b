// SPDX-License-Identifier: Apache-2.0
//
// What a command of the trainer prints, run in this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "trainer/commands/run.hpp"

namespace dp::trainer {

inline std::string printed_by(const std::vector<std::string>& words) {
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    if (!parsed.options) return "";
    ::testing::internal::CaptureStdout();
    const auto done = parsed.options->command == Command::info
                          ? info(*parsed.options)
                          : run(*parsed.options, std::chrono::steady_clock::now());
    std::string printed = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(done) << done.error().message;
    return printed;
}

}  // namespace dp::trainer
