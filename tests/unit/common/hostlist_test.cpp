// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

using Names = std::vector<std::string>;

struct ExpandCase {
    const char* list;
    Names hosts;
};

TEST(Hostlist, ExpandsWhatSlurmWrites) {
    const ExpandCase cases[] = {
        {"", {}},
        {"node1", {"node1"}},
        {"a,b", {"a", "b"}},
        {"gpu[1-3]", {"gpu1", "gpu2", "gpu3"}},
        {"gpu[01-03,07],login1", {"gpu01", "gpu02", "gpu03", "gpu07", "login1"}},
        {"n[8-11]", {"n8", "n9", "n10", "n11"}},
        {"r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}},
        {"rack[1-2]-ib", {"rack1-ib", "rack2-ib"}},
        {"node[098-101]", {"node098", "node099", "node100", "node101"}},
    };
    for (const auto& c : cases) {
        auto hosts = expand_hostlist(c.list);
        ASSERT_TRUE(hosts) << c.list << ": " << hosts.error().message;
        EXPECT_EQ(*hosts, c.hosts) << c.list;
    }
}

TEST(Hostlist, RefusesWhatIsNoList) {
    for (const char* list : {"n[1-", "n1]", "n[]", "n[a-b]", "n[3-1]", "n[1-2", "n[[1]]", "a,,b", "a,", ",a",
                             "n[0-999999999999]", "n[1-2000]m[1-2000]", "n[1-99999999999999999999]"})
        EXPECT_FALSE(expand_hostlist(list)) << list;
}

TEST(Hostlist, CompressesNeighbours) {
    EXPECT_EQ(compress_hostlist(Names{}), "");
    EXPECT_EQ(compress_hostlist(Names{"node01"}), "node01");
    EXPECT_EQ(compress_hostlist(Names{"node01", "node02", "node03", "node07"}), "node[01-03,07]");
    EXPECT_EQ(compress_hostlist(Names{"a", "b1", "b2", "c"}), "a,b[1-2],c");
    EXPECT_EQ(compress_hostlist(Names{"n9", "n10", "n11"}), "n9,n[10-11]");
}

TEST(Hostlist, CompressedListsExpandToTheSame) {
    for (int width = 1; width <= 4; ++width)
        for (int step = 1; step <= 3; ++step) {
            Names hosts;
            for (int i = 0; i < 40; i += step) {
                std::string digits = std::to_string(i);
                if (digits.size() < static_cast<size_t>(width))
                    digits.insert(0, static_cast<size_t>(width) - digits.size(), '0');
                hosts.push_back("host" + digits);
            }
            auto back = expand_hostlist(compress_hostlist(hosts));
            ASSERT_TRUE(back);
            EXPECT_EQ(*back, hosts) << compress_hostlist(hosts);
        }
}

TEST(Ranks, AreNamedShortly) {
    EXPECT_EQ(name_ranks(std::vector<uint32_t>{3}), "rank 3");
    EXPECT_EQ(name_ranks(std::vector<uint32_t>{0, 1, 2, 5, 7, 8}), "ranks 0-2,5,7-8");
}

}  // namespace
}  // namespace dp
