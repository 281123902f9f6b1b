// SPDX-License-Identifier: Apache-2.0
//
// The key of a cache entry: how it is found, and how it is known to be stale. Pure; stored_data.cpp and
// plan.cpp make keys, cache.cpp looks them up.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace dp::trainer {

using Facts = std::map<std::string, std::string>;

// Everything that an entry depends on.
struct CacheKey {
    std::string kind;  // "data" or "plan"
    Facts what;        // what was asked for, and on which device: names the entry
    Facts from;        // of what it was made: build, libraries, files. With others it is made again.
};

// "plan-<SHA-256 of what was asked for>.cache", so that a newer build's entry replaces the older one's.
std::string file_name(const CacheKey& key);

// All of them in one line.
std::string text_of(const Facts& facts);

// The facts that differ, "build, files" say; nothing if they are equal.
std::optional<std::string> difference(const Facts& from, const Facts& other);

}  // namespace dp::trainer
