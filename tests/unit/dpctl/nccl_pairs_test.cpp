// SPDX-License-Identifier: Apache-2.0
#include "dpctl/nccl_pairs.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

// The lines of a rank's log, as NCCL begins them.
std::string log_of(std::initializer_list<const char*> lines, const std::string& thread = "9") {
    std::string log;
    for (const char* line : lines) log += "node01:7:" + thread + " [0] NCCL INFO " + line + "\n";
    return log;
}

using Counts = std::map<std::string, size_t>;  // "0 to 1 via SHM" → channels

Counts counts(const NcclPairs& found) {
    Counts out;
    for (const auto& [pair, channels] : found.channels)
        out[std::to_string(pair.from) + " to " + std::to_string(pair.to) + " via " + pair.via] =
            channels.size();
    return out;
}

const char* const kWorld =
    "ncclCommInitRank comm 0x5581 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1b000 commId 0x2a - Init START";

TEST(NcclPairs, AreOfTheRanksThatSend) {
    const auto found = pairs_in(log_of(
        {kWorld, "comm 0x5581 rank 3 nRanks 8 nNodes 2 localRanks 4 localRank 3 MNNVL 0",
         "Channel 00/02 : 0 1 2 3", "Channel 00/0 : 3[3] -> 2[2] via P2P/CUMEM/read",
         "Channel 01/0 : 3[3] -> 2[2] via P2P/CUMEM/read",
         "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared",
         "Channel 00/0 : 7[3] -> 3[3] [receive] via NET/IB/0/GDRDMA",
         "Channel 02 : 3[3] -> 1[1] via SHM/direct/direct",
         "Channel 03/1 : 3[3] -> 5[1] [send] via NET/Socket/1", "Channel 00/0 : 2[2] -> 1[1] via P2P/IPC"}));
    EXPECT_EQ(found.world_size, 8u);
    EXPECT_EQ(counts(found), (Counts{{"3 to 2 via P2P/CUMEM", 2},
                                     {"3 to 4 via NET/IB/GDRDMA", 1},
                                     {"3 to 1 via SHM", 1},
                                     {"3 to 5 via NET/Socket", 1}}));
}

TEST(NcclPairs, OfSmallerCommunicatorsAreNotTaken) {
    const char* const small =
        "ncclCommSplit comm 0x6000 rank 1 nranks 2 cudaDev 3 nvmlDev 3 busId 1b000 - Init START";
    const std::string log = log_of({kWorld, "Channel 00/0 : 3[3] -> 2[2] via P2P/IPC"}) +
                            log_of({small, "Channel 00/0 : 1[3] -> 0[2] via SHM/direct"}, "10");
    EXPECT_EQ(counts(pairs_in(log)), (Counts{{"3 to 2 via P2P/IPC", 1}}));
    EXPECT_EQ(counts(pairs_in(log + log_of({"Channel 01/0 : 3[3] -> 1[1] via SHM/direct"}, "11"))),
              (Counts{{"3 to 2 via P2P/IPC", 1}}))
        << "nobody knows whose";
    EXPECT_EQ(
        counts(pairs_in(log_of({kWorld}) + log_of({"Channel 01/0 : 3[3] -> 1[1] via SHM/direct"}, "11"))),
        (Counts{{"3 to 1 via SHM", 1}}))
        << "of the only one";
    const char* const other = "ncclCommInitRank comm 0x7000 rank 4 nranks 8 cudaDev 3 - Init START";
    EXPECT_EQ(pairs_in(log + log_of({other})).world_size, 0u) << "two are as large";
}

TEST(NcclPairs, InCutOrForeignLinesAreNone) {
    for (const char* line :
         {"Channel 00/0 : 3[3] -> 2[2] via ", "Channel 00/0 : 3[3] -> via SHM",
          "Channel 00/0 : x[3] -> 2[2] via SHM", "Channel", "Channel 00/0 : 99999999999[3] -> 2[2] via SHM"})
        EXPECT_TRUE(pairs_in(log_of({kWorld, line})).channels.empty()) << line;
    EXPECT_EQ(
        pairs_in(log_of({"comm 0x1 rank 3 nranks ", "comm 0x1 rank", "comm 0x1 rank 3 nRanks x nNodes"}))
            .world_size,
        0u);
    EXPECT_EQ(pairs_in("Channel 00/0 : 3[3] -> 2[2] via SHM\n").world_size, 0u);
}

TEST(NcclPairs, OfANodeAreThoseOfItsRanks) {
    NcclPairs all =
        pairs_in(log_of({"comm 0x1 rank 0 nRanks 2 nNodes 1", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"}));
    all.add(
        pairs_in(log_of({"comm 0x1 rank 1 nRanks 2 nNodes 1", "Channel 00/0 : 1[1] -> 0[0] via P2P/IPC"})));
    all.add(pairs_in(log_of({"no communicator"})));
    wire::NcclTransports message;
    all.write(message);
    EXPECT_EQ(message.world_size(), 2u);
    ASSERT_EQ(message.pairs_size(), 2);
    EXPECT_EQ(message.pairs(1).from(), 1u);
    EXPECT_EQ(message.pairs(1).via(), "P2P/IPC");
    EXPECT_EQ(message.pairs(1).channels(), 1u);
}

}  // namespace
}  // namespace dp
