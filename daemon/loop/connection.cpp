// SPDX-License-Identifier: Apache-2.0
#include "loop/connection.hpp"

#include <event2/buffer.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "framing.hpp"

namespace dp {

Connection::Connection(event_base* base, int fd, size_t frame_limit)
    : buffer_(bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE)), limit_(frame_limit) {}

Connection::~Connection() = default;

void Connection::start(OnFrame on_frame, OnClosed on_closed) {
    on_frame_ = std::move(on_frame);
    on_closed_ = std::move(on_closed);
    bufferevent_setcb(buffer_.get(), on_read, on_write, on_event, this);
    // Writing is enabled from the start (bufferevent_socket_new); enabling it again would cost a turn of the
    // loop for nothing.
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
    add_shared(bufferevent_get_output(buffer_.get()), following);
}

void Connection::send_last(const std::string& frame) const {
    [[maybe_unused]] const ssize_t ignored =
        ::send(fd(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Connection::finish() {
    finishing_ = true;
    if (!has_unsent()) shutdown(fd(), SHUT_WR);
}

void Connection::stop() {
    closed_ = true;
    bufferevent_disable(buffer_.get(), EV_READ | EV_WRITE);
}

bool Connection::has_unsent() const {
    return evbuffer_get_length(bufferevent_get_output(buffer_.get())) > 0;
}

bool Connection::is_idle() const {
    int unread = 0;
    return !has_unsent() && ioctl(fd(), FIONREAD, &unread) == 0 && unread == 0;
}

int Connection::fd() const {
    return bufferevent_getfd(buffer_.get());
}

void Connection::close_with(const std::string& why) {
    if (closed_) return;
    stop();
    // The call-back may destroy this object: touch nothing of it afterwards.
    auto callback = std::move(on_closed_);
    if (callback) callback(why);
}

void Connection::on_read(bufferevent*, void* pointer) {
    auto* self = static_cast<Connection*>(pointer);
    evbuffer* input = bufferevent_get_input(self->buffer_.get());
    for (;;) {
        unsigned char header[kFrameHeader];
        if (evbuffer_copyout(input, header, sizeof header) < static_cast<ssize_t>(sizeof header)) return;
        auto length = frame_length(header, self->limit_);
        if (!length) {
            self->close_with("it sent a frame over the limit of " + std::to_string(self->limit_) + " bytes");
            return;
        }
        if (evbuffer_get_length(input) < kFrameHeader + *length) return;
        std::string body(*length, '\0');
        evbuffer_drain(input, kFrameHeader);
        evbuffer_remove(input, body.data(), body.size());
        // Copied, because the call-back may replace the connection while it runs.
        auto callback = self->on_frame_;
        if (!callback(body)) return;
        if (self->closed_) return;
    }
}

void Connection::on_write(bufferevent*, void* pointer) {
    auto* self = static_cast<Connection*>(pointer);
    if (self->finishing_) shutdown(self->fd(), SHUT_WR);
}

void Connection::on_event(bufferevent*, short what, void* pointer) {
    auto* self = static_cast<Connection*>(pointer);
    if (what & BEV_EVENT_CONNECTED) return;
    if (what & BEV_EVENT_EOF)
        self->close_with("its connection closed");
    else if (what & BEV_EVENT_ERROR)
        self->close_with(std::string("its connection broke: ") + std::strerror(EVUTIL_SOCKET_ERROR()));
}

}  // namespace dp
