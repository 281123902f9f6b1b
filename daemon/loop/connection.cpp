// SPDX-License-Identifier: Apache-2.0
#include "loop/connection.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace dp {

Connection::Connection(event_base* base, int fd, size_t frame_limit)
    : buffer_(bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE)), limit_(frame_limit) {}

void Connection::start(OnFrame on_frame, OnClosed on_closed) {
    on_frame_ = std::move(on_frame);
    on_closed_ = std::move(on_closed);
    bufferevent_setcb(
        buffer_.get(), [](bufferevent*, void* self) { at(self).read_frames(); },
        [](bufferevent*, void* self) {
            if (at(self).finishing_) shutdown(at(self).fd(), SHUT_WR);
        },
        [](bufferevent*, short what, void* self) {
            at(self).closed_by_peer_ = (what & BEV_EVENT_EOF) || EVUTIL_SOCKET_ERROR() == ECONNRESET;
            if (what & BEV_EVENT_EOF)
                at(self).close_with("its connection closed");
            else if (what & BEV_EVENT_ERROR)
                at(self).close_with(std::string("its connection broke: ") +
                                    std::strerror(EVUTIL_SOCKET_ERROR()));
        },
        this);
    // Writing is enabled from the start; enabling it again would cost a turn of the loop for nothing.
    bufferevent_enable(buffer_.get(), EV_READ);
}

void Connection::send(const std::string& frame, const SharedBytes& following) {
    if (finishing_) return;
    std::string_view rest = frame;
    // libevent alone would wait for another turn of the loop.
    if (!following && !has_unsent()) {
        const ssize_t sent = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) rest.remove_prefix(static_cast<size_t>(sent));
    }
    // Or lets libevent find out that the connection broke.
    if (!rest.empty()) bufferevent_write(buffer_.get(), rest.data(), rest.size());
    add_shared(buffer_, following);
}

void Connection::finish() {
    finishing_ = true;
    if (!has_unsent()) shutdown(fd(), SHUT_WR);
}

void Connection::stop() {
    closed_ = true;
    bufferevent_disable(buffer_.get(), EV_READ | EV_WRITE);
}

bool Connection::is_idle() const {
    int unread = 0;
    return !has_unsent() && ioctl(fd(), FIONREAD, &unread) == 0 && unread == 0;
}

void Connection::close_with(const std::string& why, bool over_limit) {
    if (closed_) return;
    stop();
    on_closed_(why, over_limit);
}

void Connection::read_frames() {
    evbuffer* input = bufferevent_get_input(buffer_.get());
    while (!closed_) {
        unsigned char header[kFrameHeader];
        if (evbuffer_copyout(input, header, sizeof header) < static_cast<ssize_t>(sizeof header)) return;
        const auto length = frame_length(header, limit_);
        if (!length)
            return close_with("it sent a frame over the limit of " + std::to_string(limit_) + " bytes", true);
        if (evbuffer_get_length(input) < kFrameHeader + *length) return;
        std::string body(*length, '\0');
        evbuffer_drain(input, kFrameHeader);
        evbuffer_remove(input, body.data(), body.size());
        on_frame_(body);
    }
}

}  // namespace dp
