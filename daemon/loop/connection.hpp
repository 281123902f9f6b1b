// SPDX-License-Identifier: Apache-2.0
//
// A socket that carries frames, on libevent: reads whole frames under a size limit, writes without blocking,
// and reports its end once. Destroying it closes the socket.
#pragma once

#include <event2/bufferevent.h>
#include <event2/event.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "loop/shared_bytes.hpp"

namespace dp {

class Connection {
 public:
    // Called with each frame's body. If it destroys the connection it must return false.
    using OnFrame = std::function<bool(std::string_view body)>;
    // Called once, with the reason, when the peer closed, an error occurred, or a frame was over the limit.
    // May destroy the connection.
    using OnClosed = std::function<void(const std::string& why)>;

    // Takes the socket, which must be non-blocking and connected or connecting; connected if
    // something is sent.
    Connection(event_base* base, int fd, size_t frame_limit);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start(OnFrame on_frame, OnClosed on_closed);
    void set_frame_limit(size_t limit) { limit_ = limit; }

    // `frame` as made by to_frame, and its continuation if there is one.
    void send(const std::string& frame, const SharedBytes& following = nullptr);
    // Sends as much of it as the socket takes now; for a connection that is over.
    void send_last(const std::string& frame) const;
    // Sends what is queued, then closes this direction; the peer may still send. on_closed comes when
    // it closes, too.
    void finish();
    // No call-back comes any more, whatever has arrived. The socket stays open until the object is destroyed.
    void stop();
    bool has_unsent() const;
    // Whether the kernel has everything that was sent. It delivers that even if this process is gone: closing
    // the socket now discards nothing, because all input was read.
    bool is_idle() const;
    int fd() const;

 private:
    struct Free {
        void operator()(bufferevent* b) const { bufferevent_free(b); }
    };
    std::unique_ptr<bufferevent, Free> buffer_;
    size_t limit_;
    bool finishing_ = false;
    bool closed_ = false;
    OnFrame on_frame_;
    OnClosed on_closed_;

    static void on_read(bufferevent*, void* self);
    static void on_write(bufferevent*, void* self);
    static void on_event(bufferevent*, short what, void* self);
    void close_with(const std::string& why);
};

}  // namespace dp
