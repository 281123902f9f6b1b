// SPDX-License-Identifier: Apache-2.0
//
// Things by number. One that is dropped is found no longer, and freed at the end of the turn, because a
// call-back of its own may be on the stack.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "loop/timer.hpp"

namespace dp {

// The last number that a thing got.
inline uint64_t last_number = 0;

template <typename Thing>
class Numbered {
 public:
    explicit Numbered(event_base* base)
        : free_(base, [this] { const auto freed = std::exchange(dropped_, {}); }) {}

    // Sets its `id`: ascending, and different from every other one in the process.
    Thing& add() {
        Thing& thing = things_[++last_number];
        thing.id = last_number;
        return thing;
    }
    Thing* find(uint64_t id) {
        const auto found = things_.find(id);
        return found == things_.end() ? nullptr : &found->second;
    }
    void drop(uint64_t id) {
        dropped_.push_back(things_.extract(id));
        free_.at_end_of_turn();
    }
    size_t size() const { return things_.size(); }
    auto begin() { return things_.begin(); }
    auto end() { return things_.end(); }

 private:
    using Things = std::map<uint64_t, Thing>;
    Things things_;
    std::vector<typename Things::node_type> dropped_;
    Timer free_;
};

}  // namespace dp
