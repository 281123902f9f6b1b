// SPDX-License-Identifier: Apache-2.0
#include "common/interfaces.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

const std::vector<InterfaceAddress> kHost = {{"lo", "127.0.0.1", 8},       {"eth0", "192.168.0.7", 24},
                                             {"ib0", "10.1.0.7", 16},      {"ib0", "fd00:1::7", 64},
                                             {"wild0", "169.254.3.4", 16}, {"eth0", "fe80::1", 64},
                                             {"v6", "fd00:2::7", 64}};

TEST(Interfaces, AreChosenByNameOrNetwork) {
    struct {
        const char* wanted;
        uint32_t nodes;
        const char* address;
        const char* interface;
    } const cases[] = {{"ib0", 2, "10.1.0.7", "ib0"},
                       {"10.1.0.0/16", 2, "10.1.0.7", "ib0"},
                       {"fd00:1::/64", 2, "fd00:1::7", "ib0"},
                       {"v6", 2, "fd00:2::7", "v6"},
                       {"eth0", 2, "192.168.0.7", "eth0"},
                       {"lo", 1, "127.0.0.1", "lo"},
                       {"192.168.0.0/16", 4, "192.168.0.7", "eth0"}};
    for (const auto& c : cases) {
        auto chosen = choose_interface(c.wanted, kHost, "gpu07", c.nodes);
        ASSERT_TRUE(chosen) << c.wanted << ": " << chosen.error().message;
        EXPECT_EQ(chosen->address, c.address);
        EXPECT_EQ(chosen->interface, c.interface);
    }
}

TEST(Interfaces, AWrongChoiceNamesTheHostAndWhatItHas) {
    for (const char* wanted :
         {"ib1", "ib", "10.2.0.0/16", "fd00:3::/64", "lo", "127.0.0.0/8", "wild0", "fe80::/10"}) {
        auto chosen = choose_interface(wanted, kHost, "gpu07", 2);
        ASSERT_FALSE(chosen) << wanted;
        for (const char* part : {wanted, "gpu07", "give ", "ib0 10.1.0.7/16"})
            EXPECT_NE(chosen.error().message.find(part), std::string::npos) << chosen.error().message;
    }
    EXPECT_NE(choose_interface("ib0", {}, "gpu07", 2).error().message.find("none that is up"),
              std::string::npos);
}

TEST(Interfaces, WhatIsDownOrHasNoAddressIsSaidToBeSo) {
    std::vector<InterfaceAddress> host = kHost;
    host.push_back({"ib1", "10.3.0.7", 16, false});
    host.push_back({"ib2", "", 0, true});
    host.push_back({"ib3", "", 0, false});
    const std::pair<const char*, const char*> cases[] = {
        {"ib1",
         "--dp-interface=ib1: ib1 of gpu07 is down; bring it up there (ip link set ib1 up), or give a name"},
        {"10.3.0.0/16", "ib1 of gpu07 is down; bring it up"},
        {"ib2", "ib2 of gpu07 has no address; give a name"},
        {"ib3", "ib3 of gpu07 is down; bring it up"},
        {"ib4", "gpu07 has no such interface; give a name"},
        {"10.4.0.0/16", "gpu07 has no address in that network; give a name"},
    };
    for (const auto& [wanted, text] : cases) {
        const auto chosen = choose_interface(wanted, host, "gpu07", 2);
        ASSERT_FALSE(chosen) << wanted;
        EXPECT_NE(chosen.error().message.find(text), std::string::npos) << chosen.error().message;
        EXPECT_EQ(chosen.error().message.find("10.3.0.7"), std::string::npos) << "of no use to the user";
    }
}

TEST(Interfaces, OfThisHostIncludeLoopback) {
    bool loopback = false;
    for (const auto& one : interface_addresses())
        loopback = loopback || (one.interface == "lo" && one.address == "127.0.0.1" && one.prefix == 8);
    EXPECT_TRUE(loopback);
}

TEST(Addresses, OfTheChosenNetworkOnlyIfThereAreAny) {
    using List = std::vector<std::string>;
    EXPECT_EQ(in_network_of(kHost[2], {"192.168.0.9", "10.1.3.4", "fd00:1::9"}), (List{"10.1.3.4"}));
    EXPECT_EQ(in_network_of(kHost[2], {"192.168.0.9", "10.1.3.4", "10.1.3.5"}),
              (List{"10.1.3.4", "10.1.3.5"}));
    EXPECT_EQ(in_network_of(kHost[3], {"192.168.0.9", "fd00:1::9"}), (List{"fd00:1::9"}));
    EXPECT_EQ(in_network_of(kHost[2], {"192.168.0.9", "fd00:1::9"}), (List{"192.168.0.9", "fd00:1::9"}));
    EXPECT_EQ(in_network_of({}, {"a", "b"}), (List{"a", "b"}));
}

TEST(Addresses, LoopbackAndLinkLocalReachNobody) {
    using List = std::vector<std::string>;
    EXPECT_EQ(reachable({"127.0.1.1", "::1", "10.0.0.1", "169.254.1.1", "fe80::2", "fd00::2"}),
              (List{"10.0.0.1", "fd00::2"}));
}

}  // namespace
}  // namespace dp
