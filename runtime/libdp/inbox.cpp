// SPDX-License-Identifier: Apache-2.0
#include "libdp/inbox.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/awake.hpp"
#include "framing.hpp"

namespace dp {

void Inbox::read_until(const std::function<bool()>& done, std::chrono::milliseconds end) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) {
        try {
            has_thread();
        } catch (const std::system_error&) {
            // No thread is available: the call that reads delivers this one's answer, or this one reads next.
        }
        return;
    }
    while (!done()) {
        const auto left = end - steady_now();
        if (left <= std::chrono::milliseconds(0)) return;
        std::array<pollfd, 2> ready = {{{socket_, POLLIN, 0}, {taken_over_.get(), POLLIN, 0}}};
        const int n = poll(ready.data(), ready.size(), static_cast<int>(left.count()));
        if (n < 0 && errno != EINTR) return;  // no memory in the kernel
        if (n <= 0) continue;
        if (ready[1].revents != 0) return;
        receive(MSG_DONTWAIT);
    }
}

void Inbox::start() {
    if (thread_reads_) return;
    if (const std::unique_lock turn(turn_, std::try_to_lock); turn) receive(MSG_DONTWAIT);
    if (has_thread()) thread_reads_.wait(false);
}

bool Inbox::is_own_thread() {
    const std::lock_guard guard(mutex_);
    return thread_.get_id() == std::this_thread::get_id();
}

void Inbox::stop() {
    {
        const std::lock_guard guard(mutex_);
        stopped_ = true;
    }
    if (thread_.joinable()) thread_.join();
}

// Starts the thread if there is none. False after stop.
bool Inbox::has_thread() {
    const std::lock_guard guard(mutex_);
    if (thread_.joinable() || stopped_) return thread_.joinable();
    const BlockedSignals blocked;
    thread_ = std::thread([this] {
        const std::lock_guard turn(turn_);
        thread_reads_ = true;
        thread_reads_.notify_all();
        while (receive(0)) {
        }
    });
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(taken_over_.get(), &one, sizeof one);
    return true;
}

// Delivers the next input; turn_ is held. False at the end of the connection, which has been delivered, too.
bool Inbox::receive(int flags) {
    std::array<char, 16384> chunk;
    const ssize_t n = recv(socket_, chunk.data(), chunk.size(), flags);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n > 0) {
        input_.append(chunk.data(), static_cast<size_t>(n));
        if (deliver_input()) return true;
        input_.clear();
        shutdown(socket_, SHUT_RDWR);
    }
    deliver_(nullptr);
    return false;
}

// False: no daemon sends this.
bool Inbox::deliver_input() {
    std::string_view left = input_;
    while (left.size() >= kFrameHeader) {
        const auto length = frame_length(reinterpret_cast<const unsigned char*>(left.data()), kMaxFrame);
        if (!length) return false;
        if (left.size() < kFrameHeader + *length) break;
        const auto message = parse_message<wire::ToRank>(left.substr(kFrameHeader, *length));
        if (!message) return false;
        deliver_(&*message);
        left.remove_prefix(kFrameHeader + *length);
    }
    input_.erase(0, input_.size() - left.size());
    return true;
}

}  // namespace dp
