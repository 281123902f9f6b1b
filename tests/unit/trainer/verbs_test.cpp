// SPDX-License-Identifier: Apache-2.0
//
// `trainer info` called as main.cpp calls them: what they print.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>

#include "scratch.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/run.hpp"

namespace dp::trainer {
namespace {

std::string printed_by(std::vector<std::string> words) {
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    ::testing::internal::CaptureStdout();
    const auto done = parsed.options->verb == Verb::info
                          ? info(*parsed.options)
                          : run(*parsed.options, std::chrono::steady_clock::now());
    std::string printed = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(done) << done.error().message;
    return printed;
}

// What `auto` takes here is asked of the device that it opens.
TEST(InfoVerb, CountsTheCopiesOfBf16ThatARunWouldHave) {
    const auto cuda = open_cuda({});
    const auto memory = [](const std::string& device) {
        const std::string printed = printed_by({"info", "--model=cnn", "--precision=bf16", device});
        const auto at = printed.find("memory, without the data set");
        return printed.substr(at, printed.find('\n', at) - at);
    };
    EXPECT_EQ(memory("--device=auto"), memory(cuda ? "--device=cuda" : "--device=cpu"));
    EXPECT_NE(memory("--device=cpu"), memory("--device=cuda"));
}

}  // namespace
}  // namespace dp::trainer
