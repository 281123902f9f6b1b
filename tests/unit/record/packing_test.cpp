// SPDX-License-Identifier: Apache-2.0
//
// The entries of a record as gzip packs them: what is written can be unpacked at once, and older records are read as before.
#include "record/packing.hpp"

#include <random>

#include "common/read_file.hpp"
#include "dpctl/report.hpp"
#include "long_record.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

// All that `packed` has, in pieces of so many bytes.
std::string unpacked(RecordUnpacker& unpacker, std::string_view packed, size_t piece) {
    std::string all, some(piece, '\0');
    for (;;) {
        const size_t size = unpacker.unpack(packed, some);
        all.append(some, 0, size);
        if (size == 0) return all;
    }
}

TEST(Packing, EachWriteCanBeUnpackedAtOnce) {
    std::mt19937 random(1);
    RecordPacker packer;
    RecordUnpacker unpacker;
    for (const size_t size : {size_t{1}, size_t{300}, size_t{5000}, size_t{100'000}, size_t{3}}) {
        std::string bytes;
        for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random() % 200);
        EXPECT_EQ(unpacked(unpacker, packer.pack(bytes), 1000), bytes) << size;
    }
    EXPECT_EQ(unpacked(unpacker, packer.finish(), 1000), "");
    EXPECT_FALSE(unpacker.is_damaged());
    EXPECT_EQ(unpacked(unpacker, "more", 1000), "");
    EXPECT_TRUE(unpacker.is_damaged()) << "nothing follows the end";
}

TEST(Packing, WhatIsNoGzipIsDamaged) {
    RecordUnpacker unpacker;
    EXPECT_EQ(unpacked(unpacker, "slurm-dp", 1000), "");
    EXPECT_TRUE(unpacker.is_damaged());
    unpacker.reset();
    EXPECT_FALSE(unpacker.is_damaged());
}

using PackedRecordTest = RecordTest;

// As older daemons wrote it, and as it is written now.
TEST_F(PackedRecordTest, APlainOneSaysTheSame) {
    const LongRecordShape shape{1, 2, 200};
    std::vector<std::string> said;
    for (const bool is_packed : {false, true}) {
        LongRecord made(shape, 0);
        std::ofstream out(folder + "/node" + std::string(kRecordSuffix), std::ios::binary);
        RecordPacker packer;
        out << (is_packed ? kRecordMagic : kPlainRecordMagic);
        made.write([&](const record::Entry& entry) {
            const std::string bytes = bytes_of(entry);
            out << (is_packed ? packer.pack(bytes) : bytes);
        });
        if (is_packed) out << packer.finish();
        out.close();
        const Records all = records();
        ASSERT_EQ(all.runs.size(), 1u);
        EXPECT_TRUE(all.problems.empty());
        Report report;
        report.runs.push_back({all.runs[0], timeline()});
        said.push_back(report_json(report));
        EXPECT_GT(read_details(all.runs[0])->phases.size(), 1000u) << "it is read again from its beginning";
    }
    EXPECT_EQ(said[0], said[1]);
}

// Other tools read it so: proto/record.proto.
TEST_F(PackedRecordTest, ZcatUnpacksIt) {
    const std::string packed = folder + "/packed", plain = folder + "/plain";
    RecordPacker packer;
    std::ofstream(packed, std::ios::binary)
        << kRecordMagic << packer.pack("one ") << packer.pack("two") << packer.finish();
    ASSERT_EQ(std::system(("tail -n +2 " + packed + " | zcat > " + plain).c_str()), 0);
    EXPECT_EQ(read_file(plain), "one two");
}

}  // namespace
}  // namespace dp
