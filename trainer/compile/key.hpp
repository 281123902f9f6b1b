// SPDX-License-Identifier: Apache-2.0
//
// By what an entry of the cache is found, and by what it is known to be stale. Pure; stored_data.cpp and
// plan.cpp make the keys, cache.cpp looks for them.
#ifndef TRAINER_COMPILE_KEY_HPP
#define TRAINER_COMPILE_KEY_HPP

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dp::trainer {

// Everything that an entry depends on. Of nlohmann's objects the keys are sorted, so equal facts are equal
// text.
struct CacheKey {
    std::string kind;     // "data" or "plan"
    nlohmann::json what;  // what was asked for, and on which device: names the entry
    nlohmann::json from;  // of what it was made: build, libraries, files. With others it is made again.
};

// "plan-<SHA-256 of what was asked for>.cache". So a newer build's entry takes the place of the older one's.
std::string file_name(const CacheKey& key);

// What of `from` is not the same in both, "build, files" say; nothing where all is.
std::optional<std::string> difference(const nlohmann::json& from, const nlohmann::json& other);

}  // namespace dp::trainer

#endif
