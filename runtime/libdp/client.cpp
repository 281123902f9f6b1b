// SPDX-License-Identifier: Apache-2.0
#include "libdp/client.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/awake.hpp"
#include "base/errno_text.hpp"
#include "common/unix_socket.hpp"
#include "framing.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

// The minimum interval between reports of progress.
constexpr std::chrono::milliseconds kProgressEvery{10};
// The daemon answers every call at its deadline; if it is this much later, it is taken for dead.
constexpr std::chrono::milliseconds kDaemonPatience{5000};
constexpr const char* kDaemonGone = "this node's rendezvous daemon is gone: its connection closed";
// A daemon that does not read for this long is hung, and no call may hang with it.
constexpr int kWritePatienceSeconds = 10;

tl::unexpected<Error> error(dp_status status, std::string message) {
    return tl::unexpected(Error{status, std::move(message)});
}

tl::unexpected<Error> in_a_fork() {
    return error(DP_ERROR_INVALID,
                 "this process is a fork of the rank that opened the world; only the rank itself may use it");
}

// A new thread inherits the mask, so that the program's signal handlers run in its own threads, not in ours.
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

Result<std::unique_ptr<Client>> Client::connect(const WorldEnvironment& world) {
    const std::string shown = "@" + world.socket;
    const auto address = AbstractAddress::of(world.socket);
    if (!address) return error(DP_ERROR_INVALID, "DP_SOCKET=" + shown + " is too long for a socket name");

    std::unique_ptr<Client> client(new Client);
    client->take_over_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (client->take_over_) client->socket_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Bounds the connect on a full backlog, too.
    const timeval patience{kWritePatienceSeconds, 0};
    if (client->socket_)
        setsockopt(client->socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!client->socket_ || !address->connect(client->socket_.get()))
        return error(DP_ERROR_LOST,
                     "cannot reach this node's rendezvous daemon at " + shown + ": " + errno_text(errno) +
                         (out_of_descriptors(errno)
                              ? ""
                              : " (it leaves with the step; does this process run on the step's node and in "
                                "its network namespace?)"));
    if (const auto peer = peer_of(client->socket_.get()); !peer || peer->uid != getuid())
        return error(DP_ERROR_LOST, "the socket " + shown + " belongs to user id " +
                                        (peer ? std::to_string(peer->uid) : "?") + ", not to this step");

    client->owner_ = getpid();
    // A signal must not restart the wait for the welcome.
    const BlockedSignals blocked;
    DP_TRY(client->greet(world, shown));
    return client;
}

Result<void> Client::greet(const WorldEnvironment& world, const std::string& shown) {
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
        // In a fork of the rank, the conversation is the parent's and the reading thread does not exist.
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
    // The reader has ended all calls of other threads; they must have returned before this object goes.
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return calls_ == 0; });
}

bool Client::write_frame(const std::string& frame) {
    std::lock_guard guard(write_mutex_);
    if (!send_all(socket_.get(), frame)) {
        // The next frame would complete this half one, so the conversation is over.
        const int why = errno;
        shutdown(socket_.get(), SHUT_RDWR);
        errno = why;
        return false;
    }
    return true;
}

// A call in progress, however it ends. Made with mutex_ held.
class Client::InProgress {
 public:
    InProgress(Client& client, uint64_t id, Pending& pending) : client_(client), id_(id) {
        client_.pending_[id] = &pending;
        ++client_.calls_;
    }
    ~InProgress() {
        std::lock_guard guard(client_.mutex_);
        client_.pending_.erase(id_);
        if (--client_.calls_ == 0) client_.idle_.notify_all();
    }
    InProgress(const InProgress&) = delete;
    InProgress& operator=(const InProgress&) = delete;

 private:
    Client& client_;
    uint64_t id_;
};

Result<wire::Reply> Client::call(wire::Request request, std::chrono::milliseconds timeout) {
    if (getpid() != owner_) return in_a_fork();
    request.set_timeout_ms(timeout.count());
    wire::FromRank message;
    *message.mutable_request() = std::move(request);
    std::unique_lock lock(mutex_);
    // The thread that delivers answers would wait for itself.
    if (std::this_thread::get_id() == reader_.get_id())
        return error(DP_ERROR_INVALID,
                     "a call-back of dp_on_event cannot wait; let another thread make this call");
    if (!abort_reason_.empty()) return error(DP_ERROR_ABORTED, abort_reason_);
    if (lost_) return error(DP_ERROR_LOST, lost_reason_);
    if (closing_) return error(DP_ERROR_LOST, "the context is being closed (dp_close)");
    const uint64_t id = next_id_++;
    message.mutable_request()->set_id(id);
    const std::string frame = to_frame(message);
    // A relay wraps it once more.
    if (frame.size() > kMaxFrame - 64)
        return error(DP_ERROR_TOO_LARGE,
                     "a request of " + std::to_string(frame.size()) + " bytes is too large");
    Pending pending;
    const InProgress progress(*this, id, pending);
    lock.unlock();
    const bool sent = write_frame(frame);
    if (!sent && errno == EAGAIN)
        return error(DP_ERROR_LOST, "this node's rendezvous daemon does not answer (it takes no request)");
    // If it could not be sent, the end of the input says why.
    if (!wait_for(pending, timeout + kDaemonPatience))
        return error(DP_ERROR_LOST, "this node's rendezvous daemon does not answer (no reply)");
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
    // A stopped daemon must still have room for calls, so at most one of these is unread.
    const auto now = std::chrono::steady_clock::now();
    int unread = 0;
    if (now < progress_told_ + kProgressEvery || ioctl(socket_.get(), SIOCOUTQ, &unread) != 0 || unread > 0)
        return;
    progress_told_ = now;
    const ssize_t sent = send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // A unix socket takes a frame this small as a whole; the next one would complete a half one.
    if (sent > 0 && static_cast<size_t>(sent) < frame.size()) shutdown(socket_.get(), SHUT_RDWR);
}

Result<void> Client::enter_phase(dp_phase_kind phase) {
    const Phases::Page page = phases_.page();
    if (page == Phases::Page::parents || (page == Phases::Page::none && getpid() != owner_))
        return in_a_fork();
    const auto entered = phases_.enter(static_cast<uint64_t>(phase));
    if (!entered) return error(DP_ERROR_INVALID, entered.error().message);
    if (*entered) {
        wire::FromRank message;
        message.mutable_phases()->set_fd(**entered);
        write_frame(to_frame(message));  // where the daemon is gone nobody wants to know
    }
    return {};
}

uint64_t Client::next_sequence(const std::string& group, const std::vector<uint32_t>& members) {
    std::lock_guard guard(mutex_);
    return sequences_[{group, members}]++;
}

// ---- reading ----

bool Client::wait_for(Pending& pending, std::chrono::milliseconds time) {
    return wait_awake(time, [&](std::chrono::milliseconds slice) {
        const auto end = steady_now() + slice;
        std::unique_lock lock(mutex_);
        if (pending.answered) return true;
        if (!reader_.joinable() && !alone_) {
            alone_ = true;
            lock.unlock();
            read_for(pending, end);
            lock.lock();
            alone_ = false;
        } else if (!reader_.joinable() && !closing_) {
            try {
                start_reader();
            } catch (const std::system_error&) {
                // No thread is available: the call that reads delivers this answer, too, or this
                // one reads next.
            }
        }
        return pending.done.wait_for(lock, std::max(end - steady_now(), std::chrono::milliseconds(0)),
                                     [&] { return pending.answered; });
    });
}

// Reads until it is answered, the time is over, or a thread reads for all.
void Client::read_for(Pending& pending, std::chrono::milliseconds end) {
    for (;;) {
        {
            std::lock_guard guard(mutex_);
            if (pending.answered || reader_.joinable()) return;
        }
        const auto left = end - steady_now();
        if (left <= std::chrono::milliseconds(0)) return;
        pollfd ready[] = {{socket_.get(), POLLIN, 0}, {take_over_.get(), POLLIN, 0}};
        const int n = poll(ready, std::size(ready), static_cast<int>(left.count()));
        if (n < 0 && errno != EINTR) return;  // no memory in the kernel
        if (n > 0) receive_alone();
    }
}

// Delivers what has arrived, unless a thread does that.
void Client::receive_alone() {
    std::lock_guard reading(read_mutex_);
    if (!has_reader()) receive(MSG_DONTWAIT);
}

// Delivers the next input. False: the conversation is over, and all calls know it.
bool Client::receive(int flags) {
    std::array<char, 16384> chunk;
    const ssize_t n = recv(socket_.get(), chunk.data(), chunk.size(), flags);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n > 0) {
        input_.append(chunk.data(), static_cast<size_t>(n));
        if (deliver_input()) return true;
        input_.clear();
        shutdown(socket_.get(), SHUT_RDWR);
    }
    end_all(DP_EVENT_LOST, kDaemonGone, {});
    return false;
}

// False: no daemon sends this.
bool Client::deliver_input() {
    std::string_view left = input_;
    while (left.size() >= kFrameHeader) {
        const auto length = frame_length(reinterpret_cast<const unsigned char*>(left.data()), kMaxFrame);
        if (!length) return false;
        if (left.size() < kFrameHeader + *length) break;
        const auto message = parse_message<wire::ToRank>(left.substr(kFrameHeader, *length));
        if (!message) return false;
        deliver(*message);
        left.remove_prefix(kFrameHeader + *length);
    }
    input_.erase(0, input_.size() - left.size());
    return true;
}

void Client::deliver(const wire::ToRank& message) {
    if (message.has_abort()) {
        end_all(DP_EVENT_ENDING, message.abort().reason(),
                {message.abort().dead().begin(), message.abort().dead().end()});
        return;
    }
    if (message.has_deaths()) {
        tell({DP_EVENT_DEATHS,
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
    if (lost_) return;
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
    tell({kind, reason, std::move(dead)});
}

// ---- what the daemon tells unasked ----

void Client::tell(StepEvent event) {
    {
        std::lock_guard guard(mutex_);
        if (std::this_thread::get_id() != reader_.get_id()) {
            news_.push_back(std::move(event));
            return;
        }
    }
    events_.happen(event);
}

void Client::tell_news() {
    std::lock_guard telling(telling_);
    std::deque<StepEvent> news;
    {
        std::lock_guard guard(mutex_);
        news.swap(news_);
    }
    for (const StepEvent& event : news) events_.happen(event);
}

// No call-back exists before this thread does, so events so far are only stored for later.
Events& Client::listen() {
    if (getpid() != owner_ || has_reader()) return events_;
    std::lock_guard telling(telling_);
    if (has_reader()) return events_;
    receive_alone();
    tell_news();
    std::lock_guard guard(mutex_);
    if (!reader_.joinable() && !closing_) start_reader();
    return events_;
}

bool Client::has_reader() {
    std::lock_guard guard(mutex_);
    return reader_.joinable();
}

// mutex_ is held.
void Client::start_reader() {
    const BlockedSignals blocked;
    reader_ = std::thread([this] { read_for_all(); });
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(take_over_.get(), &one, sizeof one);
}

void Client::read_for_all() {
    // Whoever was reading has delivered its input, and nobody else starts to.
    { std::lock_guard reading(read_mutex_); }
    tell_news();
    while (receive(0)) {
    }
}

}  // namespace dp
