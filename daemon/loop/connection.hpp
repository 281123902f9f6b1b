// SPDX-License-Identifier: Apache-2.0
//
// A socket that carries frames, on libevent: reads whole frames under a size limit, writes without blocking,
// and reports its end once. Destroying it closes the socket.
#pragma once

#include <event2/event.h>

#include <functional>
#include <string>
#include <string_view>

#include "framing.hpp"
#include "loop/buffers.hpp"

namespace dp {

class Connection {
 public:
    // Gets each frame's body. The call-backs may stop the connection but not destroy it (see Numbered).
    using OnFrame = std::function<void(std::string_view body)>;
    // Called once, with the reason, when the peer closed, an error occurred, or a frame was over the limit.
    using OnClosed = std::function<void(const std::string& why, bool over_limit)>;

    // Takes the socket, which must be non-blocking, and connected or connecting; before a send, connected.
    Connection(event_base* base, int fd, size_t frame_limit);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start(OnFrame on_frame, OnClosed on_closed);
    void set_frame_limit(size_t limit) { limit_ = limit; }

    // `frame` as made by to_frame, and its continuation if there is one.
    void send(const std::string& frame, const SharedBytes& following = nullptr);
    template <typename Message>
    void send(const SharedMessage<Message>& message) {
        send(to_frame(message.own, message.rest ? message.rest->size() : 0), message.rest);
    }
    // Sends what is queued, then closes this direction. on_closed comes when the peer closes the other.
    void finish();
    // No call-back comes any more, whatever has arrived. The socket stays open until the object is destroyed.
    void stop();
    bool has_unsent() const { return unsent(buffer_) > 0; }
    // Whether the kernel has everything that was sent. It delivers that even if this process is gone: closing
    // the socket now discards nothing, because all input was read.
    bool is_idle() const;
    // Whether it ended because the peer, or its host, has no such connection any more: not for want of an answer.
    bool closed_by_peer() const { return closed_by_peer_; }
    int fd() const { return bufferevent_getfd(buffer_.get()); }

 private:
    BufferPtr buffer_;
    size_t limit_;
    bool finishing_ = false;
    bool closed_ = false;
    bool closed_by_peer_ = false;
    OnFrame on_frame_;
    OnClosed on_closed_;

    static Connection& at(void* pointer) { return *static_cast<Connection*>(pointer); }
    void read_frames();
    void close_with(const std::string& why, bool over_limit = false);
};

}  // namespace dp
