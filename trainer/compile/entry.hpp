// SPDX-License-Identifier: Apache-2.0
//
// The file of a cache entry: a description in JSON, then blocks of raw numbers, all with checksums. cache.cpp
// places and finds these files. If something is wrong with one, the error is just the reason, such as "cut
// short"; the work is then simply done again.
//
// Layout: "dpcache2", the length of the description and its CRC-32 (8 bytes each, little-endian), the
// description, and each block at the next multiple of 4096 bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"
#include "trainer/compile/key.hpp"

namespace dp::trainer {

using Block = std::span<const std::uint8_t>;

// A system error is the whole message.
Result<void> write_entry(const std::filesystem::path& file, const CacheKey& key,
                         const nlohmann::json& content, std::span<const Block> blocks);

class Entry {
 public:
    ~Entry();
    Entry(Entry&&) noexcept;
    Entry& operator=(Entry&&) noexcept;
    // Reads the description.
    static Result<Entry> open(const std::filesystem::path& file);

    const CacheKey& key() const { return key_; }
    const nlohmann::json& content() const { return *content_; }
    std::size_t block_count() const { return blocks_.size(); }
    std::int64_t bytes() const { return bytes_; }      // of the file
    std::int64_t written() const { return written_; }  // seconds since 1970

    // Read, not mapped: if another node replaced the file on NFS, touching its old pages would
    // kill the process.
    Result<std::vector<std::uint8_t>> read(std::size_t block) const;

 private:
    struct Place {
        std::int64_t at, bytes;
        std::uint64_t checksum;
    };
    Fd fd_;
    CacheKey key_;
    std::unique_ptr<nlohmann::json> content_;
    std::vector<Place> blocks_;
    std::int64_t bytes_ = 0, written_ = 0;

    Entry();
};

}  // namespace dp::trainer
