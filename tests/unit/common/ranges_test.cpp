// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/unix_socket.hpp"

namespace dp {
namespace {

using Numbers = std::vector<uint32_t>;

TEST(Ranges, AreNumbersAndRunsOfThem) {
    const std::pair<const char*, Numbers> cases[] = {
        {"", {}},  {"5", {5}}, {"2-5", {2, 3, 4, 5}}, {"0,2-3,7", {0, 2, 3, 7}}, {"7,1-1,7", {7, 1, 7}},
        {"9", {9}}};
    for (const auto& [list, numbers] : cases) EXPECT_EQ(parse_ranges<uint32_t>(list, 9), numbers) << list;
    for (const char* wrong : {",", "1,", "-", "1-", "-1", "1-2-3", "a", "1-b", " 1", "5-2", "10", "8-10",
                              "+1", "99999999999", "0-9,0"})
        EXPECT_EQ(parse_ranges<uint32_t>(wrong, 9), std::nullopt) << wrong;
    EXPECT_EQ(parse_range<uint16_t>("5-2"), std::pair(uint16_t{5}, uint16_t{2})) << "its reader judges that";
    EXPECT_EQ(parse_range<uint16_t>("65536"), std::nullopt);
}

TEST(UnixSocket, AnAddressHasAName) {
    EXPECT_FALSE(AbstractAddress::of(""));
    EXPECT_FALSE(AbstractAddress::of(std::string(108, 'a')));
    const std::string name = "slurm-dp-test-" + std::to_string(getpid()) + std::string(80, 'x');
    const auto address = AbstractAddress::of(name);
    ASSERT_TRUE(address);
    const int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_FALSE(address->connect(other)) << "nobody listens";
    EXPECT_TRUE(address->bind(one));
    EXPECT_EQ(listen(one, 1), 0);
    EXPECT_FALSE(AbstractAddress::of(name.substr(1))->connect(other)) << "another name";
    EXPECT_TRUE(address->connect(other));
    const auto peer = peer_of(other);
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->uid, getuid());
    EXPECT_EQ(peer->pid, getpid());
    EXPECT_FALSE(peer_of(-1));
    close(one);
    close(other);
}

}  // namespace
}  // namespace dp
