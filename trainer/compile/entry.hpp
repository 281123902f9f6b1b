// SPDX-License-Identifier: Apache-2.0
//
// A cache entry: its key, and its file, a description in JSON and blocks of raw numbers, all with checksums.
// If something is wrong with a file, the error is just the reason, such as "cut short".
//
// Layout: "dpcache3", the description's length and CRC-32 (8 bytes each, little-endian), it, the blocks.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

using Facts = std::map<std::string, std::string>;

// Everything that an entry depends on. stored_data.cpp and plan.cpp make keys.
struct CacheKey {
    std::string kind;  // "data" or "plan"
    Facts what;        // what was asked for, and on which device: names the entry
    Facts from;        // of what it was made: build, libraries, files. With others it is made again.
};

// "0.1.0, build 3f…", with the linker's build id. Another build's code may compose other images.
std::string build_of_this_program();

// "plan-<SHA-256 of what was asked for>.cache", so that a newer build's entry replaces the older one's.
std::string file_name(const CacheKey& key);

// All of them in one line.
std::string text_of(const Facts& facts);

// The names of the facts that differ, "build, files" say; "" if they are equal.
std::string difference(const Facts& from, const Facts& other);

using Block = std::span<const std::uint8_t>;

// A system error is the whole message.
Result<void> write_entry(const std::filesystem::path& file, const CacheKey& key,
                         const nlohmann::json& content, std::span<const Block> blocks);

struct Entry {
    struct Place {
        std::int64_t at, bytes;
        std::uint64_t checksum;
    };
    CacheKey key;
    nlohmann::json content;
    std::vector<Place> blocks;
    std::int64_t bytes = 0;              // of the file
    std::int64_t written = 0, used = 0;  // seconds since 1970
    Fd file;
};

// Reads the description.
Try<Entry> open_entry(const std::filesystem::path& file);

// Read, not mapped: if another node replaced the file on NFS, touching its old pages would kill the process.
Try<std::vector<std::uint8_t>> read_block(const Entry& entry, std::size_t block);

}  // namespace dp::trainer
