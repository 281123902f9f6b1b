// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/key.hpp"

#include <fmt/format.h>

#include <set>

#include "trainer/base/files.hpp"

namespace dp::trainer {

std::string file_name(const CacheKey& key) {
    return fmt::format("{}-{}.cache", key.kind, sha256(key.what.dump()));
}

std::optional<std::string> difference(const nlohmann::json& from, const nlohmann::json& other) {
    if (from == other) return std::nullopt;
    if (!from.is_object() || !other.is_object()) return "everything";
    std::set<std::string> names;
    for (const auto* facts : {&from, &other}) {
        for (const auto& [name, value] : facts->items())
            if (from.value(name, nlohmann::json()) != other.value(name, nlohmann::json())) names.insert(name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace dp::trainer
