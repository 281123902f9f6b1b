// SPDX-License-Identifier: Apache-2.0
//
// Work for the end of a turn of the loop: done once, after every call-back that is due by then, however often
// it was requested. No call-back is on the stack then, so it may free what they use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "loop/timer.hpp"

namespace dp {

class Deferred {
 public:
    Deferred(event_base* base, std::function<void()> work)
        : work_(std::move(work)), event_(event_new(base, -1, 0, run, this)) {}
    Deferred(const Deferred&) = delete;
    Deferred& operator=(const Deferred&) = delete;

    // The event goes to the end of the active ones; unlike a timer it does not cost a turn of its own.
    void ask() { event_active(event_.get(), EV_TIMEOUT, 0); }

 private:
    std::function<void()> work_;
    EventPtr event_;

    static void run(int, short, void* self) { static_cast<Deferred*>(self)->work_(); }
};

// The last number that a thing got.
inline uint64_t last_number = 0;

// Things by number. One that is dropped is found no longer, and freed at the end of the turn, because a
// call-back of its own may be on the stack.
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
        free_.ask();
    }
    size_t size() const { return things_.size(); }
    auto begin() { return things_.begin(); }
    auto end() { return things_.end(); }

 private:
    using Things = std::map<uint64_t, Thing>;
    Things things_;
    std::vector<typename Things::node_type> dropped_;
    Deferred free_;
};

}  // namespace dp
