// SPDX-License-Identifier: Apache-2.0
//
// The options of the cache that `trainer compile` fills and a run looks into; options.cpp adds them.
#ifndef TRAINER_COMMANDS_COMPILE_OPTIONS_HPP
#define TRAINER_COMMANDS_COMPILE_OPTIONS_HPP

#include <cstdint>
#include <filesystem>
#include <optional>

namespace CLI {
class App;
}

namespace dp::trainer {

struct CacheOptions {
    std::optional<std::filesystem::path> directory;  // "none": there is no cache
    bool off = false;
    bool force = false;                           // compile: what is there is made again, too
    std::int64_t limit = std::int64_t{10} << 30;  // compile: bytes of all entries together
};

// Those of all verbs that train, and those of `compile` alone.
void add_cache_options(CLI::App& app, CacheOptions& options);
void add_compile_options(CLI::App& verb, CacheOptions& options);

// Where the cache is: as the options say, else where the environment has caches; nothing where there is none.
std::optional<std::filesystem::path> cache_directory(const CacheOptions& options);

}  // namespace dp::trainer

#endif
