// SPDX-License-Identifier: Apache-2.0
//
// How large a record becomes, of ranks that train and have a GPU each: USER.md and ADMIN.md say what it takes.
#include <gtest/gtest.h>

#include "long_record.hpp"
#include "record/packing.hpp"

namespace dp {
namespace {

constexpr int64_t kHour = 3600;
constexpr double kMib = 1 << 20;

// Of one node, in bytes.
size_t size_of(const LongRecordShape& shape, uint32_t node) {
    RecordPacker packer;
    size_t size = kRecordMagic.size();
    LongRecord(shape, node).write([&](const record::Entry& entry) {
        size += packer.pack(bytes_of(entry)).size();
    });
    return size + packer.finish().size();
}

TEST(RecordSize, OfEightRanksForAnHourIsLessThan2Mib) {
    for (const uint32_t nodes : {1u, 2u, 8u}) {
        const LongRecordShape shape{nodes, 8 / nodes, kHour};
        size_t size = 0;
        for (uint32_t node = 0; node < nodes; ++node) size += size_of(shape, node);
        RecordProperty("bytes_of_8_ranks_on_" + std::to_string(nodes), std::to_string(size));
        EXPECT_LT(static_cast<double>(size) / kMib, 2) << "on " << nodes << " nodes";
    }
}

// All nodes but rank 0's are alike.
TEST(RecordSize, OfThousandRanksForAnHourIsLessThan100Mib) {
    const LongRecordShape shape{128, 8, kHour};
    const size_t size = size_of(shape, 0) + (shape.nodes - 1) * size_of(shape, 1);
    RecordProperty("bytes_of_1024_ranks", std::to_string(size));
    EXPECT_LT(static_cast<double>(size) / kMib, 100);
}

}  // namespace
}  // namespace dp
