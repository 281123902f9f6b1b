// SPDX-License-Identifier: Apache-2.0
//
// Work for the end of a turn of the loop: it is done once, after every call-back that is due by then, however
// often it was asked for. No call-back is on the stack meanwhile, so it may free what they use.
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

    // The event goes to the end of those that are active: unlike a timer it costs no turn of its own.
    void ask() { event_active(event_.get(), EV_TIMEOUT, 0); }

 private:
    std::function<void()> work_;
    EventPtr event_;

    static void run(int, short, void* self) { static_cast<Deferred*>(self)->work_(); }
};

// What is over, by its number, until the end of the turn: then `free` is called for each.
template <typename Id>
class FreedLater {
 public:
    FreedLater(event_base* base, std::function<void(Id)> free)
        : free_(std::move(free)), free_all_(base, [this] {
              for (Id id : std::exchange(ids_, {})) free_(id);
          }) {}

    // Whether it was not over before.
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
