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

// How long after the first node the others are waited for: they look at least once a minute, and twice (loop/transports_reader.hpp).
inline constexpr Time kTransportsCome{130000};
// The most different ones that are told of at once.
inline constexpr size_t kMostTransports = 8;

class StepTransports {
 public:
    void note(uint32_t node, const wire::NcclTransports& transports, Time now);
    // The ranks begin anew: what they talk over is told if that is new.
    void begin_generation() {
        told_.clear();
        fresh_.clear();
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
    struct Told {
        Words words;
        std::string log;
    };
    std::map<uint32_t, Told> told_;             // by node, in this generation
    std::set<uint32_t> fresh_;                  // of these nodes since it was told last
    std::map<Words, std::set<uint32_t>> said_;  // of which nodes
    std::set<Words> said_of_all_;
    std::optional<Time> due_;
};

}  // namespace dp
