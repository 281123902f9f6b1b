// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace dp {
namespace {

TEST(Query, FindsTheSocketsThatAreListenedOn) {
    const char* text =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 41 @slurm-dp/12.0/1001/5f\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 42 @slurm-dp/12.0/1001/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 43 @slurm-dp/12.0/1001/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 44 /run/slurm-dp/13.0/1001/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 45 @slurm-dp/short\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 46 @slurm-dp/13.2/1002/61\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 47 @slurm-dp/13.2/bob/61\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 48 @slurm-dp-metrics/13.2\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 49 @slurm-dp/\x1b[31m14.0/1001/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 4a @slurm-dp/14.0\xff/1001/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 4b @slurm-dp/14.0/1001/\x1b\n"
        "garbage";
    EXPECT_EQ(daemon_sockets(text),
              (std::vector<RanksSocketName>{{"12.0", 1001, "5f"}, {"13.2", 1002, "61"}}));
    EXPECT_EQ(daemon_sockets(text).back().text(), "slurm-dp/13.2/1002/61");
    EXPECT_TRUE(daemon_sockets("").empty());
}

TEST(Query, NobodysStepIsTriedThatIsNotHis) {
    const char* const machine = "         0          0 4294967295\n";
    const char* const rootless = "         0       1001          1\n         1     100000      65536\n";
    const char* const nested = "         0          0          1\n";
    const char* const container = "         0     100000      65536\n";
    struct Case {
        const char* uid_map;
        uid_t user, socket;
        bool named, tried;
    };
    for (const Case& c : {Case{machine, 1001, 1001, false, true},
                          {machine, 1001, 1002, false, false},
                          {machine, 1001, 1002, true, false},
                          {machine, 1001, 0, true, false},
                          {machine, 0, 1002, false, true},
                          {rootless, 0, 1001, false, true},   // a step of Slurm's outside
                          {rootless, 0, 0, false, true},      // dpctl launch inside
                          {rootless, 0, 1002, false, false},  // not root
                          {rootless, 7, 100006, false, true},
                          {nested, 0, 1001, false, false},
                          {nested, 0, 1001, true, true},  // his, for all that can be seen
                          {container, 1001, 1001, false, true},
                          {container, 0, 1001, false, false},
                          {container, 0, 1001, true, true},  // its root
                          {"", 5, 5, false, true},
                          {"", 5, 6, true, false}})
        EXPECT_EQ(querying_user(c.uid_map, c.user).may_try({"1.0", c.socket, "a"}, c.named), c.tried)
            << c.uid_map << c.user << " " << c.socket << (c.named ? " named" : "");
}

TEST(Query, AJobStandsForItsSteps) {
    EXPECT_TRUE(is_step("123.0", "123"));
    EXPECT_TRUE(is_step("123.0", "123.0"));
    EXPECT_FALSE(is_step("123.0", "12"));
    EXPECT_FALSE(is_step("123.0", "123.1"));
    EXPECT_FALSE(is_step("12.0", "123"));
}

// A daemon that takes nobody: some wait for it already, as many as may.
class Crowded {
 public:
    explicit Crowded(const std::string& name, bool crowd) {
        address_.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), address_.sun_path + 1);
        size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size_), 0);
        EXPECT_EQ(listen(listener_.get(), 1), 0);
        while (crowd) {
            Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address_), size_) != 0) break;
            waiting_.push_back(std::move(fd));
        }
    }

 private:
    sockaddr_un address_{};
    socklen_t size_ = 0;
    Fd listener_;
    std::vector<Fd> waiting_;
};

TEST(Query, ACrowdedSocketHoldsNobodyUpForLong) {
    unsetenv("DP_SOCKET");
    const std::string own = std::to_string(getpid());
    const auto name = [&own](const char* step) { return RanksSocketName{own + step, getuid(), "a"}.text(); };
    const Crowded crowded(name(".0"), true);
    const Crowded also(name(".1"), true);
    const Crowded free(name(".2"), false);
    const auto begin = std::chrono::steady_clock::now();
    const auto found = connect_step(own, "status");
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->step, own + ".2");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    const auto none = connect_step(own + ".0", "status");
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().message.find("step " + own + ".0 on this node takes no connection"),
              std::string::npos)
        << none.error().message;
}

TEST(Query, SeveralStepsAreListedInOrder) {
    unsetenv("DP_SOCKET");
    const std::string job = std::to_string(getpid());
    std::vector<std::unique_ptr<Crowded>> steps;
    for (const char* step : {".10", ".9", ".2", ".11"})
        steps.push_back(std::make_unique<Crowded>(RanksSocketName{job + step, getuid(), "b"}.text(), false));
    const auto found = connect_step(job, "status");
    ASSERT_FALSE(found);
    const std::string& why = found.error().message;
    size_t last = 0;
    for (const char* step : {".2", ".9", ".10", ".11"}) {
        const size_t at = why.find(job + step, last);
        ASSERT_NE(at, std::string::npos) << why;
        last = at + 1;
    }
    EXPECT_TRUE(why.ends_with("name one: dpctl status " + job + ".2")) << why;
}

TEST(Query, AStepHasANumberOrTwo) {
    for (const char* step : {"12", "12.0", "local.4711", "0.0"}) EXPECT_TRUE(is_step_name(step)) << step;
    for (const char* other : {"", "-5", "1.2.3", "12.", ".0", "12_3", "12.x", "local", "local.", "12.batch"})
        EXPECT_FALSE(is_step_name(other)) << other;
}

}  // namespace
}  // namespace dp
