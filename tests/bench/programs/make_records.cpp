// SPDX-License-Identifier: Apache-2.0
//
// The record of a long step that nobody has run (tests/unit/record/long_record.hpp): bench-records DIR NODES RANKS_PER_NODE SECONDS.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "record/long_record.hpp"
#include "record/packing.hpp"

namespace {

using namespace dp;

bool write(const std::string& folder, const LongRecordShape& shape, uint32_t node) {
    LongRecord record(shape, node);
    std::ofstream out(folder + "/" + record.host() + std::string(kRecordSuffix), std::ios::binary);
    RecordPacker packer;
    out << kRecordMagic;
    record.write([&](const record::Entry& entry) { out << packer.pack(bytes_of(entry)); });
    out << packer.finish();
    return static_cast<bool>(out.flush());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench-records DIR NODES RANKS_PER_NODE SECONDS\n");
        return 2;
    }
    const std::string folder = argv[1];
    const LongRecordShape shape{static_cast<uint32_t>(std::atoi(argv[2])),
                                static_cast<uint32_t>(std::atoi(argv[3])), std::atoll(argv[4])};
    mkdir(folder.c_str(), 0777);
    for (uint32_t node = 0; node < shape.nodes; ++node)
        if (!write(folder, shape, node)) {
            std::perror(folder.c_str());
            return 1;
        }
    return 0;
}
