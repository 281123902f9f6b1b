// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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
        {"n[1-2]0", {"n10", "n20"}},
        {"n[9-11][1-2]", {"n91", "n92", "n101", "n102", "n111", "n112"}},
        {"n[2,1,1]", {"n2", "n1", "n1"}},
    };
    for (const auto& c : cases) {
        auto hosts = expand_hostlist(c.list);
        ASSERT_TRUE(hosts) << c.list << ": " << hosts.error().message;
        EXPECT_EQ(*hosts, c.hosts) << c.list;
        // One by one, too.
        const auto list = Hostlist::read(c.list);
        ASSERT_TRUE(list);
        EXPECT_EQ(list->size(), c.hosts.size()) << c.list;
        EXPECT_EQ(list->at(c.hosts.size()), std::nullopt) << c.list;
        for (size_t i = 0; i < c.hosts.size(); ++i) {
            EXPECT_EQ(list->at(i), c.hosts[i]) << c.list;
            EXPECT_TRUE(list->has(c.hosts[i])) << c.list << " has " << c.hosts[i];
        }
    }
}

TEST(Hostlist, HasNoOthers) {
    const std::pair<const char*, Names> cases[] = {
        {"", {"", "a"}},
        {"node1", {"", "node", "node10", "node11", "ode1"}},
        {"gpu[01-03,07]", {"gpu1", "gpu001", "gpu04", "gpu", "gpu011", "gpu01x", "gpu99999999999999999999"}},
        {"n[8-11]", {"n08", "n7", "n12", "n011", "n+9", "n-9", "n 9"}},
        {"r[1-2]n[1-2]", {"r1", "r1n", "r1n3", "r3n1", "r1n1n1", "r11n1"}},
        {"n[1-2]0", {"n1", "n2", "n30", "n100", "n12"}},
        {"n[9-11][1-2]", {"n9", "n93", "n12", "n121", "n1011"}},
    };
    for (const auto& [text, others] : cases) {
        const auto list = Hostlist::read(text);
        ASSERT_TRUE(list);
        for (const auto& other : others) EXPECT_FALSE(list->has(other)) << text << " has " << other;
    }
}

TEST(Hostlist, NodesAreNumberedByTheirLowestRanks) {
    using Nodes = std::vector<std::pair<uint32_t, std::string>>;
    const std::pair<Nodes, const char*> cases[] = {
        {{}, ""},
        {{{0, "node01"}}, "node01"},
        {{{0, "node01"}, {4, "node02"}, {8, "node03"}}, "node[01-03]"},  // block
        {{{0, "node01"}, {1, "node02"}, {2, "node03"}}, "node[01-03]"},  // cyclic
        {{{1, "node01"}, {0, "node02"}}, "node[02,01]"},                 // arbitrary: 02 01 02 02
        {{{7, "node01"}, {0, "node02"}, {2, "other"}}, "node02,other,node01"},
    };
    for (const auto& [nodes, list] : cases) {
        const std::vector<std::string> hosts = in_rank_order(nodes);
        EXPECT_EQ(compress_hostlist(hosts), list);
        EXPECT_EQ(expand_hostlist(list), hosts) << "as the nodes read it";
    }
}

TEST(Hostlist, ListsMayHaveAHostInCommon) {
    std::string written_out = "node1";
    for (int i = 3; i < 200; i += 2) written_out += ",node" + std::to_string(i);
    const std::string lists[] = {
        "",
        written_out,
        "node[150,152],node151",
        "node[2,4,6],node2,node4,node6,node8,node12,node14,node16,node18,node20,node22,node24",
        "node1",
        "node10",
        "node[1-9]",
        "node[01-32]",
        "node[33-64]",
        "node[8-11]",
        "node[008-011]",
        "node[099-101]",
        "node[98-99]",
        "node[100-105]",
        "node[01-03,30-35],login",
        "node[01-03]-ib",
        "node[3-4]-ib,login",
        "node[1-2]0",
        "node[1-3]1",
        "node1[0-9]",
        "node[1,2][0-5]",
        "n[1-2]",
        "nod[1-2],node",
        "node[18446744073709551614-18446744073709551615]",
        "node[00000000000000000000001]"};
    for (const std::string& one : lists)
        for (const std::string& two : lists) {
            const auto a = Hostlist::read(one);
            const auto b = Hostlist::read(two);
            ASSERT_TRUE(a && b) << one << " " << two;
            const Names of_a = a->all();
            const Names of_b = b->all();
            const bool expected =
                std::find_first_of(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()) != of_a.end();
            const Hostlist both[] = {*a, *b};
            const auto shared = shared_host(both);
            EXPECT_EQ(shared.has_value(), expected) << one << " and " << two;
            if (shared) {
                EXPECT_EQ(std::pair(shared->first, shared->second), std::pair(size_t{0}, size_t{1}));
                EXPECT_TRUE(std::count(of_a.begin(), of_a.end(), shared->host))
                    << shared->host << " is not in " << one;
                EXPECT_TRUE(std::count(of_b.begin(), of_b.end(), shared->host))
                    << shared->host << " is not in " << two;
            }
        }
}

// Whether they are written out or in brackets, of many lists.
TEST(Hostlist, TheTwoListsWithTheSameHostAreNamed) {
    for (const bool written_out : {false, true})
        for (const bool twice : {false, true}) {
            std::vector<std::string> texts;
            for (int i = 0; i < 40; ++i) {
                const std::string rack = {static_cast<char>('a' + i / 10), static_cast<char>('a' + i % 10)};
                texts.push_back(written_out ? "node" + std::to_string(i) : "node-" + rack + "[1-100]");
            }
            if (twice) texts[33] = texts[7] + ",other";
            std::vector<Hostlist> lists;
            for (const auto& text : texts) lists.push_back(*Hostlist::read(text));
            const auto shared = shared_host(lists);
            ASSERT_EQ(shared.has_value(), twice);
            if (twice) {
                EXPECT_EQ(shared->first, 7u);
                EXPECT_EQ(shared->second, 33u);
            }
        }
}

TEST(Hostlist, RefusesWhatIsNoList) {
    for (const char* list : {"n[1-", "n1]", "n[]", "n[a-b]", "n[3-1]", "n[1-2", "n[[1]]", "a,,b", "a,", ",a",
                             "n[0-999999999999]", "n[1-2000]m[1-2000]", "n[1-99999999999999999999]"})
        EXPECT_FALSE(expand_hostlist(list)) << list;
}

// What a few KiB of text would expand to is refused before it is made.
TEST(Hostlist, RefusesWhatIsTooMuch) {
    const std::string word(1000, 'x');
    const std::string zeros(1000, '0');
    for (const auto& list :
         {word + "[1-100000]", "n[" + zeros + "-100000]", "n[1-100][1-100]" + word + "[1-2]"})
        EXPECT_FALSE(Hostlist::read(list)) << list;
    for (const auto& list :
         {word + "[1-10000]", "n[" + zeros + "-10000]", std::string("node[000000-131071]")})
        EXPECT_TRUE(Hostlist::read(list)) << list;
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
