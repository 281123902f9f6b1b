// SPDX-License-Identifier: Apache-2.0
//
// Queries from others than ranks: dpctl, on the ranks' socket, and readers of the metrics. The broker
// answers; meanwhile each query has a number on its node.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dp.pb.h"

namespace dp {

enum class Query { status, summary, usage };

// The query in a message on the ranks' socket; nullopt if it is a rank's.
inline std::optional<Query> query_of(const wire::FromRank& message) {
    if (message.has_status()) return message.status().summary() ? Query::summary : Query::status;
    if (message.has_usage()) return Query::usage;
    return std::nullopt;
}

struct Asker {
    enum class Door { ranks_socket, metrics } door = Door::ranks_socket;
    uint64_t connection = 0;  // there
    auto operator<=>(const Asker&) const = default;
};

class Queries {
 public:
    uint64_t add(Asker asker) {
        askers_.emplace(++last_, asker);
        return last_;
    }
    bool awaits(Asker asker) const {
        return std::any_of(askers_.begin(), askers_.end(), [&](const auto& q) { return q.second == asker; });
    }
    // It was answered. nullopt if the asker has gone.
    std::optional<Asker> remove(uint64_t number) {
        auto found = askers_.find(number);
        if (found == askers_.end()) return std::nullopt;
        const Asker asker = found->second;
        askers_.erase(found);
        return asker;
    }
    void forget(Asker asker) {
        std::erase_if(askers_, [&](const auto& query) { return query.second == asker; });
    }
    std::vector<Asker> take_all() {
        std::vector<Asker> out;
        for (const auto& [number, asker] : std::exchange(askers_, {})) out.push_back(asker);
        return out;
    }

 private:
    std::map<uint64_t, Asker> askers_;
    uint64_t last_ = 0;
};

}  // namespace dp
