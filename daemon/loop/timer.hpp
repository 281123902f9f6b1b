// SPDX-License-Identifier: Apache-2.0
//
// A one-shot timer on libevent that calls a function; re-armed by after(), dropped with its owner.
#pragma once

#include <event2/event.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "engine/time.hpp"

namespace dp {

struct FreeEvent {
    void operator()(event* e) const { event_free(e); }
};
using EventPtr = std::unique_ptr<event, FreeEvent>;

class Timer {
 public:
    Timer(event_base* base, std::function<void()> on_time)
        : on_time_(std::move(on_time)), event_(evtimer_new(base, fire, this)) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void after(Time delay) {
        const auto ms = std::max<Time::rep>(delay.count(), 0);
        const timeval wait{ms / 1000, (ms % 1000) * 1000};
        event_add(event_.get(), &wait);
    }
    // After every call-back that is due in this turn of the loop, once, however often it is asked for. No
    // call-back is on the stack then, so it may free what they use. Unlike after(0), this costs no turn
    // of its own: the event goes to the end of the active ones.
    void at_end_of_turn() { event_active(event_.get(), EV_TIMEOUT, 0); }
    void cancel() { event_del(event_.get()); }

 private:
    std::function<void()> on_time_;
    EventPtr event_;

    static void fire(int, short, void* self) { static_cast<Timer*>(self)->on_time_(); }
};

}  // namespace dp
