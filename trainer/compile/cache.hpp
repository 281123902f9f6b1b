// SPDX-License-Identifier: Apache-2.0
//
// The directory of what `trainer compile` has made: an entry a file, whose date is when it was used last.
// Many ranks and nodes may read it and write to it at the same time: a file is there as a whole or not at
// all. compile.cpp fills it, compiled.cpp looks into it for a run.
#ifndef TRAINER_COMPILE_CACHE_HPP
#define TRAINER_COMPILE_CACHE_HPP

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "trainer/base/made_directories.hpp"
#include "trainer/base/result.hpp"
#include "trainer/compile/entry.hpp"
#include "trainer/compile/key.hpp"

namespace dp::trainer {

struct Lookup {
    std::optional<Entry> entry;  // what was looked for
    // Why what is there is not it, such as "damaged" or "stale (build)"; "": nothing is there.
    std::string why_not;
};

class Cache {
 public:
    explicit Cache(std::filesystem::path directory) : directory_(std::move(directory)) {}

    const std::filesystem::path& directory() const { return directory_; }
    // What is found counts as used.
    Lookup find(const CacheKey& key) const;

    // Makes the directory where it is missing, removes what writers that died have left, and tries whether
    // an entry could be written. The error says all. A directory that was made goes with what is returned,
    // where nothing has been put there until then.
    Result<MadeDirectories> open_for_writing() const;
    // Takes the place of the entry that was there.
    Result<void> put(const CacheKey& key, const nlohmann::json& content, std::span<const Block> blocks) const;
    // Of all entries.
    std::int64_t bytes() const;
    // Removes entries, those that were used longest ago first, until all together have at most so many bytes.
    // What was used within the last hour stays: another rank may be about to read it. Returns how many went.
    std::int64_t prune(std::int64_t bytes) const;

 private:
    std::filesystem::path directory_;
};

// Pure: $XDG_CACHE_HOME/slurm-dp, else ~/.cache/slurm-dp; nothing where there is neither (null or no
// absolute path).
std::optional<std::filesystem::path> default_cache_directory(const char* xdg_cache_home, const char* home);

// Pure: "40 s", "3 min", "5 h" or "12 days".
std::string age_text(std::int64_t seconds);

}  // namespace dp::trainer

#endif
