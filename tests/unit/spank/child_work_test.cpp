// SPDX-License-Identifier: Apache-2.0
#include "child_work.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace dp::plugin {
namespace {

Try<std::string> in_child(const std::function<Try<std::string>()>& work) {
    return ChildWork::start(work).and_then([](ChildWork child) { return child.finish(); });
}

TEST(ChildWork, YieldsWhatTheWorkYields) {
    const pid_t here = getpid();
    EXPECT_NE(in_child([] { return std::to_string(getpid()); }), std::to_string(here));
    for (const std::string& text : std::vector<std::string>{"", "-", "a\nb", std::string(1 << 20, 'x')})
        EXPECT_EQ(in_child([&] { return text; }), text) << text.size();
}

TEST(ChildWork, FailsAsTheWorkFails) {
    EXPECT_EQ(in_child([] { return fail("no slurmctld"); }).error().message, "no slurmctld");
    EXPECT_EQ(in_child([]() -> Try<std::string> { throw std::runtime_error("no memory"); }).error().message,
              "no memory");
    EXPECT_EQ(in_child([]() -> Try<std::string> {
                  raise(SIGKILL);
                  return "";
              })
                  .error()
                  .message,
              "the process that was to do it was ended");
}

TEST(ChildWork, PrintsNothing) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(in_child([] {
                  for (FILE* stream : {stdout, stderr}) {
                      std::fputs("said", stream);
                      std::fflush(stream);
                  }
                  return "done";
              }),
              "done");
    EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace dp::plugin
