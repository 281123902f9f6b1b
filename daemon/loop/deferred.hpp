// SPDX-License-Identifier: Apache-2.0
//
// Work for the end of a turn of the loop: done once, after every call-back that is due by then, however often
// it was requested. No call-back is on the stack then, so it may free what they use.
#pragma once

#include <functional>
#include <set>
#include <utility>

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

// Collects ended things by their number until the end of the turn: then calls `free` for each.
template <typename Id>
class FreedLater {
 public:
    FreedLater(event_base* base, std::function<void(Id)> free)
        : free_(std::move(free)), free_all_(base, [this] {
              for (Id id : std::exchange(ids_, {})) free_(id);
          }) {}

    // Returns whether it is new.
    bool insert(Id id) {
        free_all_.ask();
        return ids_.insert(id).second;
    }
    bool contains(Id id) const { return ids_.contains(id); }
    size_t size() const { return ids_.size(); }

 private:
    std::set<Id> ids_;
    std::function<void(Id)> free_;
    Deferred free_all_;
};

}  // namespace dp
