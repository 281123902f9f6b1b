// SPDX-License-Identifier: Apache-2.0
//
// Accepts connections on a listening socket that somebody else bound.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "base/fd.hpp"
#include "loop/log.hpp"
#include "loop/timer.hpp"

namespace dp {

class Listener {
 public:
    using OnAccept = std::function<void(Fd)>;

    // Does not own `socket`, which must be non-blocking and outlive it.
    Listener(event_base* base, int socket, RejectedPeers& rejected, OnAccept on_accept)
        : rejected_(rejected),
          on_accept_(std::move(on_accept)),
          event_(event_new(base, socket, EV_READ | EV_PERSIST, accept_some, this)),
          again_(base, [this] { event_add(event_.get(), nullptr); }) {
        event_add(event_.get(), nullptr);
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

 private:
    // Accepts a few at a time, so that a flood of connections does not starve the existing ones.
    static constexpr int kBatch = 16;
    // Without descriptors or memory the socket stays readable, and retrying at once would only burn CPU time.
    static constexpr Time kPause{100};

    RejectedPeers& rejected_;
    OnAccept on_accept_;
    EventPtr event_;
    Timer again_;

    static void accept_some(int socket, short, void* pointer) {
        auto* self = static_cast<Listener*>(pointer);
        for (int i = 0; i < kBatch; ++i) {
            int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0) {
                self->on_accept_(Fd(fd));
            } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                self->rejected_.no_room(errno);
                event_del(self->event_.get());
                self->again_.after(kPause);
                return;
            } else if (errno != EINTR && errno != ECONNABORTED) {
                return;
            }
        }
    }
};

}  // namespace dp
