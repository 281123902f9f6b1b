// SPDX-License-Identifier: Apache-2.0
//
// --dp-nccl-debug: what the ranks of a step talk over, told once, nodes that are alike together. Pure; the broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// How long after the first node the others are waited for.
inline constexpr Time kTransportsCome{90000};
// The most lines; nodes that still differ are not told of.
inline constexpr size_t kMostTransportLines = 8;

class StepTransports {
 public:
    void note(uint32_t node, const wire::NcclTransports& transports, Time now);
    // The ranks begin anew: what they talk over is only told if that is new.
    void begin_generation() {
        told_.clear();
        due_.reset();
    }
    std::vector<std::string> take(const Membership& members, Time now);
    std::optional<Time> next_deadline() const { return due_; }

 private:
    struct Words {
        std::string local, network, fell_back;
        std::string text(bool is_one_node) const;
        auto operator<=>(const Words&) const = default;
    };
    std::map<uint32_t, Words> told_;  // by node, in this generation
    std::set<Words> said_;
    std::optional<Time> due_;
};

}  // namespace dp
