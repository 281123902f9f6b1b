// SPDX-License-Identifier: Apache-2.0
#include "libdp/client.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/awake.hpp"
#include "common/errno_text.hpp"
#include "framing.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

// How often at most it is told how far the training is.
constexpr std::chrono::milliseconds kProgressEvery{10};
// The daemon answers every call at its deadline; this much later it is taken for dead.
constexpr std::chrono::milliseconds kDaemonPatience{5000};
constexpr const char* kDaemonGone = "this node's rendezvous daemon is gone: its connection closed";
// A daemon that does not read for this long is hung, and no call of a rank may hang with it.
constexpr int kWritePatienceSeconds = 10;

tl::unexpected<CallError> error(dp_status status, std::string message) {
    return tl::make_unexpected(CallError{status, std::move(message)});
}

// A new thread inherits the mask: the program's signal handlers run in its own threads, not in ours.
class BlockedSignals {
 public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
    sigset_t before_;
};

dp_status status_of(wire::Status status) {
    switch (status) {
        case wire::OK:
            return DP_OK;
        case wire::TIMEOUT:
            return DP_ERROR_TIMEOUT;
        case wire::NOT_FOUND:
            return DP_ERROR_NOT_FOUND;
        case wire::ABORTED:
            return DP_ERROR_ABORTED;
        case wire::TOO_LARGE:
            return DP_ERROR_TOO_LARGE;
        case wire::LOST:
            return DP_ERROR_LOST;
        default:
            return DP_ERROR_INVALID;
    }
}

}  // namespace

bool Client::answered_within(std::chrono::milliseconds time, Pending& pending,
                             std::unique_lock<std::mutex>& lock) {
    return wait_awake(time, [&](std::chrono::milliseconds slice) {
        return pending.done.wait_for(lock, slice, [&] { return pending.answered; });
    });
}

Call<std::unique_ptr<Client>> Client::connect(const WorldEnvironment& world) {
    const std::string shown = "@" + world.socket;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (world.socket.size() + 1 > sizeof address.sun_path)
        return error(DP_ERROR_INVALID, "DP_SOCKET=" + shown + " is too long for a socket name");
    std::memcpy(address.sun_path + 1, world.socket.data(), world.socket.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + world.socket.size());

    std::unique_ptr<Client> client(new Client);
    client->socket_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Bounds the connect on a full backlog, too.
    const timeval patience{kWritePatienceSeconds, 0};
    if (client->socket_)
        setsockopt(client->socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!client->socket_ ||
        ::connect(client->socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
        return error(DP_ERROR_LOST,
                     "cannot reach this node's rendezvous daemon at " + shown + ": " + errno_text(errno) +
                         (out_of_descriptors(errno)
                              ? ""
                              : " (it leaves with the step; does this process run on the step's node and in "
                                "its network namespace?)"));
    ucred peer{};
    socklen_t peer_size = sizeof peer;
    if (getsockopt(client->socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0 ||
        peer.uid != getuid())
        return error(DP_ERROR_LOST, "the socket " + shown + " belongs to user id " +
                                        std::to_string(peer.uid) + ", not to this step");

    client->owner_ = getpid();
    // Also so that no signal makes the wait for the welcome begin anew.
    const BlockedSignals blocked;
    if (auto greeted = client->greet(world, shown); !greeted) return tl::make_unexpected(greeted.error());
    client->reader_ = std::thread([raw = client.get()] { raw->read_loop(); });
    return client;
}

// Hello and its answer, on the calling thread: the one that reads need not be woken for them.
Call<void> Client::greet(const WorldEnvironment& world, const std::string& shown) {
    wire::FromRank hello;
    hello.mutable_hello()->set_protocol(kProtocol);
    hello.mutable_hello()->set_rank(world.rank);
    hello.mutable_hello()->set_pid(getpid());
    hello.mutable_hello()->set_world_size(world.size);
    if (!write_frame(to_frame(hello)))
        return error(DP_ERROR_LOST,
                     std::string("cannot say hello to the rendezvous daemon: ") + std::strerror(errno));
    timeval patience{kDaemonPatience.count() / 1000, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (bool welcome = false; !welcome;) {
        errno = 0;
        const auto body = receive_frame(socket_.get(), kMaxFrame);
        const bool silent = errno == EAGAIN || errno == EWOULDBLOCK;
        const auto message = body ? parse_message<wire::ToRank>(*body) : std::nullopt;
        if (!message)
            return error(DP_ERROR_LOST,
                         silent ? "the rendezvous daemon at " + shown +
                                      " does not answer: is dp-rendezvousd stopped, or this node overloaded?"
                                : kDaemonGone);
        if (message->has_reply())
            return error(status_of(message->reply().status()), message->reply().error());
        if (message->has_abort()) return error(DP_ERROR_ABORTED, message->abort().reason());
        welcome = message->has_welcome();
        if (!welcome) deliver(*message);
    }
    patience = {};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return {};
}

Client::~Client() {
    if (getpid() != owner_) {
        // A fork of the rank: the conversation is its parent's, and the reading thread does not exist here.
        if (reader_.joinable()) reader_.detach();
        return;
    }
    {
        std::lock_guard guard(mutex_);
        closing_ = true;
    }
    wire::FromRank goodbye;
    goodbye.mutable_goodbye();
    write_frame(to_frame(goodbye));
    shutdown(socket_.get(), SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
    // The reader has ended all calls of other threads; they must have left before this object goes.
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return calls_ == 0; });
}

bool Client::write_frame(const std::string& frame) {
    std::lock_guard guard(write_mutex_);
    if (!send_all(socket_.get(), frame)) {
        // Half a frame would be completed by the next one: this conversation is over.
        shutdown(socket_.get(), SHUT_RDWR);
        return false;
    }
    return true;
}

Call<wire::Reply> Client::call(wire::Request request, std::chrono::milliseconds timeout) {
    if (getpid() != owner_)
        return error(
            DP_ERROR_INVALID,
            "this process is a fork of the rank that opened the world; only the rank itself may use it");
    // The thread that brings the answers would wait for itself.
    if (std::this_thread::get_id() == reader_.get_id())
        return error(DP_ERROR_INVALID,
                     "a call-back of dp_on_event cannot wait; let another thread make this call");
    Pending pending;
    request.set_timeout_ms(timeout.count());
    wire::FromRank message;
    *message.mutable_request() = std::move(request);
    std::unique_lock lock(mutex_);
    if (!abort_reason_.empty()) return error(DP_ERROR_ABORTED, abort_reason_);
    if (lost_) return error(DP_ERROR_LOST, lost_reason_);
    const uint64_t id = next_id_++;
    message.mutable_request()->set_id(id);
    const std::string frame = to_frame(message);
    // A relay wraps it once more.
    if (frame.size() > kMaxFrame - 64)
        return error(DP_ERROR_TOO_LARGE,
                     "a request of " + std::to_string(frame.size()) + " bytes is too large");
    pending_[id] = &pending;
    ++calls_;
    lock.unlock();
    const bool sent = write_frame(frame);

    lock.lock();
    bool answered = pending.answered;
    if (sent && !answered) answered = answered_within(timeout + kDaemonPatience, pending, lock);
    pending_.erase(id);
    if (--calls_ == 0) idle_.notify_all();
    lock.unlock();
    if (!answered)
        return error(DP_ERROR_LOST, "this node's rendezvous daemon does not answer (" +
                                        std::string(sent ? "no reply" : "it takes no request") + ")");
    if (pending.reply.status() != wire::OK)
        return error(status_of(pending.reply.status()), pending.reply.error());
    return std::move(pending.reply);
}

void Client::tell_ready() {
    if (getpid() != owner_) return;
    wire::FromRank message;
    message.mutable_ready();
    write_frame(to_frame(message));
}

void Client::tell_progress(uint64_t step) {
    if (getpid() != owner_) return;
    wire::FromRank message;
    message.mutable_progress()->set_step(step);
    const std::string frame = to_frame(message);
    const std::unique_lock guard(write_mutex_, std::try_to_lock);
    if (!guard) return;
    // A daemon that stands still must find room for the calls: no more than one of these lies there unread.
    const auto now = std::chrono::steady_clock::now();
    int unread = 0;
    if (now < progress_told_ + kProgressEvery || ioctl(socket_.get(), SIOCOUTQ, &unread) != 0 || unread > 0)
        return;
    progress_told_ = now;
    const ssize_t sent = send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // A unix socket takes so small a frame as a whole; half a one would be completed by the next.
    if (sent > 0 && static_cast<size_t>(sent) < frame.size()) shutdown(socket_.get(), SHUT_RDWR);
}

uint64_t Client::next_sequence(const std::string& group, const std::vector<uint32_t>& members) {
    std::lock_guard guard(mutex_);
    return sequences_[{group, members}]++;
}

// ---- the reading thread ----

void Client::read_loop() {
    for (;;) {
        const auto body = receive_frame(socket_.get(), kMaxFrame);
        if (!body) break;
        auto message = parse_message<wire::ToRank>(*body);
        if (!message) break;
        deliver(*message);
    }
    end_all(DP_EVENT_LOST, kDaemonGone, {});
}

void Client::deliver(const wire::ToRank& message) {
    if (message.has_abort()) {
        end_all(DP_EVENT_ENDING, message.abort().reason(),
                {message.abort().dead().begin(), message.abort().dead().end()});
        return;
    }
    if (message.has_deaths()) {
        events_.happen({DP_EVENT_DEATHS,
                        message.deaths().reason(),
                        {message.deaths().ranks().begin(), message.deaths().ranks().end()}});
        return;
    }
    std::lock_guard guard(mutex_);
    auto found = pending_.find(message.reply().id());
    if (found == pending_.end() || found->second->answered) return;
    found->second->reply = message.reply();
    found->second->answered = true;
    found->second->done.notify_all();
}

void Client::end_all(dp_event_kind kind, const std::string& reason, std::vector<uint32_t> dead) {
    const bool aborted = kind == DP_EVENT_ENDING;
    std::unique_lock lock(mutex_);
    (aborted ? abort_reason_ : lost_reason_) = reason;
    if (!aborted) lost_ = true;
    for (auto& [id, pending] : pending_) {
        if (pending->answered) continue;
        pending->reply.set_status(aborted ? wire::ABORTED : wire::LOST);
        pending->reply.set_error(reason);
        pending->answered = true;
        pending->done.notify_all();
    }
    if (closing_) return;
    lock.unlock();
    events_.happen({kind, reason, std::move(dead)});
}

}  // namespace dp
