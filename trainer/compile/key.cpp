// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/key.hpp"

#include <fmt/format.h>

#include "trainer/base/files.hpp"

namespace dp::trainer {

std::string file_name(const CacheKey& key) {
    return fmt::format("{}-{}.cache", key.kind, sha256(text_of(key.what)));
}

std::string text_of(const Facts& facts) {
    std::string text;
    for (const auto& [name, value] : facts) text += fmt::format("{}={}:{};", name, value.size(), value);
    return text;
}

std::optional<std::string> difference(const Facts& from, const Facts& other) {
    Facts differ = from;
    differ.insert(other.begin(), other.end());  // those that only the other has
    std::erase_if(differ, [&](const auto& fact) {
        const auto a = from.find(fact.first), b = other.find(fact.first);
        return a != from.end() && b != other.end() && a->second == b->second;
    });
    std::string names;
    for (const auto& [name, value] : differ) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? std::nullopt : std::optional(names);
}

}  // namespace dp::trainer
