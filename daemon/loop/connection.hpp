// SPDX-License-Identifier: Apache-2.0
//
// A socket that carries frames, on libevent: reads whole frames under a size limit, writes without blocking,
// and says once when it is over. Owned by who made it; destroying it closes the socket.
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
    // Called with each frame's body. May destroy the connection; it then must return false.
    using OnFrame = std::function<bool(std::string_view body)>;
    // Called once when the peer closed, an error came or a frame was over the limit, with the reason in
    // words. May destroy the connection.
    using OnClosed = std::function<void(const std::string& why)>;

    // Takes the socket, which is non-blocking and connected or connecting; connected where something is sent.
    Connection(event_base* base, int fd, size_t frame_limit);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start(OnFrame on_frame, OnClosed on_closed);
    void set_frame_limit(size_t limit) { limit_ = limit; }

    // `frame` as to_frame makes it, with what follows it if anything does.
    void send(const std::string& frame, const SharedBytes& following = nullptr);
    // As much of it as the socket takes now; for a connection that is over.
    void send_last(const std::string& frame) const;
    // Sends what is queued, then ends this direction; the peer still may send. on_closed comes when it
    // closes, too.
    void finish();
    // No call-back comes any more, whatever has arrived. The socket stays open until the object goes.
    void stop();
    bool has_unsent() const;
    // All that was sent is with the kernel, which delivers it also when this process is gone: closing the
    // socket now takes nothing back, because all that came was read.
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
