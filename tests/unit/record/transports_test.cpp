// SPDX-License-Identifier: Apache-2.0
//
// Which ranks talk to each other over what, in a record: only where NCCL's numbers are those of the world's ranks.
#include "record/transports.hpp"

#include "dpctl/report.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

wire::NcclTransports found(std::initializer_list<std::pair<uint32_t, uint32_t>> pairs,
                           uint32_t world_size = 4) {
    wire::NcclTransports message;
    message.set_world_size(world_size);
    for (const auto& [from, to] : pairs) {
        auto& pair = *message.add_pairs();
        pair.set_from(from);
        pair.set_to(to);
        pair.set_via("P2P/CUMEM");
        pair.set_channels(2);
    }
    return message;
}

TEST(RecordedTransports, AreThoseOfTheNodesRanksInTheWorld) {
    const auto entry = transports_entry(1, found({{0, 1}, {1, 2}, {2, 3}, {1, 9}}), 4, {0, 1});
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->transports().pairs_size(), 2);
    EXPECT_EQ(entry->transports().generation(), 1u);
    EXPECT_FALSE(transports_entry(1, found({{0, 1}}, 2), 4, {0, 1})) << "another communicator's";
    EXPECT_FALSE(transports_entry(1, found({{2, 3}}), 4, {0, 1})) << "other ranks'";
}

class RecordedTransportsTest : public RecordTest {
 protected:
    Report report() const {
        const Records all = records();
        Report out;
        out.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
        return out;
    }
};

TEST_F(RecordedTransportsTest, OfAllNodesAreATable) {
    RecordedFile(folder, 0, 2, 2)
        .generation(0, 0, {0, 1}, 4)
        .add(1, *transports_entry(0, found({{0, 1}}), 4, {0, 1}))
        .add(2, *transports_entry(0, found({{1, 0}, {0, 1}}), 4, {0, 1}));
    RecordedFile(folder, 1, 2, 2)
        .generation(0, 0, {2, 3}, 4)
        .add(1, *transports_entry(0, found({{3, 0}}), 4, {2, 3}));
    const auto pairs = records().runs[0].transports.pairs;
    ASSERT_EQ(pairs.size(), 3u) << "the later entry replaces the earlier one";
    EXPECT_EQ(pairs[0].to, 1u);
    EXPECT_EQ(pairs[2].from, 3u);
    EXPECT_NE(report_text(report()).find("P2P/CUMEM  3 pairs of ranks  6 channels  rank 0 to 1, ..."),
              std::string::npos)
        << report_text(report());
}

TEST_F(RecordedTransportsTest, WhatIsTooMuchIsCounted) {
    record::Entry entry;
    for (size_t i = 0; i < kMostPairs + 7; ++i) entry.mutable_transports()->add_pairs()->set_via("</script>");
    RecordedFile(folder, 0, 1).generation(0, 0, {0}, 1).add(1, entry);
    const auto transports = records().runs[0].transports;
    EXPECT_EQ(transports.pairs.size(), kMostPairs);
    EXPECT_EQ(transports.left_out, 7u);
    EXPECT_EQ(report_page(report()).find("\"</script>"), std::string::npos);
}

TEST_F(RecordedTransportsTest, WhereNothingIsKnownNothingIsSaid) {
    RecordedFile(folder, 0, 1).generation(0, 0, {0}, 1).end(1);
    const std::string text = report_text(report());
    for (const char* words : {"NCCL", "environment", "preflight"})
        EXPECT_EQ(text.find(words), std::string::npos);
}

}  // namespace
}  // namespace dp
