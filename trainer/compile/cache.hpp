// SPDX-License-Identifier: Apache-2.0
//
// The cache directory of `trainer compile`: one file per entry, whose modification time is its last use. Many
// ranks and nodes may read and write it at once: files appear whole or not at all. compile.cpp fills it.
#pragma once

#include <optional>

#include "trainer/base/made_directories.hpp"
#include "trainer/compile/entry.hpp"

namespace dp::trainer {

struct Lookup {
    std::optional<Entry> entry;  // what was looked for
    // Why the existing entry cannot be used ("damaged", "stale (build)"); empty if none exists.
    std::string why_not;
};

class Cache {
 public:
    explicit Cache(std::filesystem::path directory) : directory_(std::move(directory)) {}

    const std::filesystem::path& directory() const { return directory_; }
    // A found entry counts as used.
    Lookup find(const CacheKey& key) const;

    // Of the entries that were made for the same as this one except for that fact: what it was for the one that was used last. nullopt:
    // there is none. Reads all descriptions, so it is for who has not found its entry and wants to know why.
    std::optional<std::string> other_value(const CacheKey& key, const std::string& fact) const;

    // Creates the directory if needed, removes leftovers of dead writers, and checks that an entry could be
    // written. A directory that was created is removed with the result, if nothing was put there until then.
    Result<MadeDirectories> open_for_writing() const;
    // Replaces an existing entry.
    Result<void> put(const CacheKey& key, const nlohmann::json& content, std::span<const Block> blocks) const;
    // The size of all entries.
    std::int64_t bytes() const;
    // Removes the least recently used entries until the rest take at most `bytes`. What was used within the
    // last hour stays: another rank may be about to read it. Returns how many were removed.
    std::int64_t prune(std::int64_t bytes) const;

 private:
    std::filesystem::path directory_;
};

// Pure: $XDG_CACHE_HOME/slurm-dp, else ~/.cache/slurm-dp; nothing if neither is set (to an absolute path).
std::optional<std::filesystem::path> default_cache_directory(const char* xdg_cache_home, const char* home);

// Pure: "40 s", "3 min", "5 h" or "12 days".
std::string age_text(std::int64_t seconds);

}  // namespace dp::trainer
