// SPDX-License-Identifier: Apache-2.0
//
// The key of a cache entry: how it is found, and how it is known to be stale. Pure; stored_data.cpp and
// plan.cpp make keys, cache.cpp looks them up.
#ifndef TRAINER_COMPILE_KEY_HPP
#define TRAINER_COMPILE_KEY_HPP

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dp::trainer {

// Everything that an entry depends on. nlohmann's objects sort their keys, so equal facts make equal text.
struct CacheKey {
    std::string kind;     // "data" or "plan"
    nlohmann::json what;  // what was asked for, and on which device: names the entry
    nlohmann::json from;  // of what it was made: build, libraries, files. With others it is made again.
};

// "plan-<SHA-256 of what was asked for>.cache", so that a newer build's entry replaces the older one's.
std::string file_name(const CacheKey& key);

// The parts of `from` that differ, "build, files" say; nothing if they are equal.
std::optional<std::string> difference(const nlohmann::json& from, const nlohmann::json& other);

}  // namespace dp::trainer

#endif
