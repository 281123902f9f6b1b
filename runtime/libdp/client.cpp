// SPDX-License-Identifier: Apache-2.0
#include "libdp/client.hpp"

#include <linux/sockios.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/awake.hpp"
#include "base/errno_text.hpp"
#include "base/unix_socket.hpp"
#include "common/processes.hpp"
#include "common/read_file.hpp"
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

}  // namespace

Client::Client(Fd socket, Fd taken_over, uint32_t generation)
    : socket_(std::move(socket)),
      owner_(getpid()),
      generation_(generation),
      inbox_(socket_.get(), std::move(taken_over),
             [this](const wire::ToRank* message) { deliver(message); }) {}

Result<std::unique_ptr<Client>> Client::connect(const WorldEnvironment& world) {
    const std::string shown = "@" + world.socket;
    const auto address = AbstractAddress::of(world.socket);
    if (!address) return error(DP_ERROR_INVALID, "DP_SOCKET=" + shown + " is too long for a socket name");

    Fd taken_over(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Fd daemon(taken_over ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1);
    // Bounds the connect on a full backlog, too.
    const timeval patience{kWritePatienceSeconds, 0};
    if (daemon) setsockopt(daemon.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!daemon || !address->connect(daemon.get()))
        return error(DP_ERROR_LOST,
                     "cannot reach this node's rendezvous daemon at " + shown + ": " + errno_text(errno) +
                         (out_of_descriptors(errno)
                              ? ""
                              : " (it leaves with the step; does this process run on the step's node and in "
                                "its network namespace?)"));
    if (const auto peer = peer_of(daemon.get()); !peer || peer->uid != getuid())
        return error(DP_ERROR_LOST, "the socket " + shown + " belongs to user id " +
                                        (peer ? std::to_string(peer->uid) : "?") + ", not to this step");

    std::unique_ptr<Client> client(new Client(std::move(daemon), std::move(taken_over), world.generation));
    // A signal must not restart the wait for the welcome.
    const BlockedSignals blocked;
    DP_TRY(client->greet(world, shown));
    let_daemon_read(world.daemon);
    return client;
}

// This process may be one that a shell script has started; a task itself has let it before. There is one such permission a process: MPI's
// and UCX's, for the other ranks, stays.
void Client::let_daemon_read(pid_t daemon) {
    if (read_file("/proc/sys/kernel/yama/ptrace_scope").substr(0, 1) != "1") return;
    const std::string mapped = read_file("/proc/self/maps");
    const bool has_own = mapped.find("/libmpi") != mapped.npos || mapped.find("/libuct") != mapped.npos;
    if (!has_own) let_daemon_read_this_process(daemon);
}

Result<void> Client::greet(const WorldEnvironment& world, const std::string& shown) {
    wire::FromRank hello;
    hello.mutable_hello()->set_protocol(kProtocol);
    hello.mutable_hello()->set_rank(world.rank);
    hello.mutable_hello()->set_pid(getpid());
    hello.mutable_hello()->set_world_size(world.size);
    hello.mutable_hello()->set_generation(world.generation);
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
        if (!welcome) deliver(&*message);
    }
    patience = {};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return {};
}

void Client::leave() {
    if (getpid() != owner_ || left_.test_and_set()) return;  // in a fork, the conversation is the parent's
    calls_.end({DP_ERROR_LOST, "the context is being closed (dp_close)"});
    tell(wrap(&wire::FromRank::mutable_goodbye));
    shutdown(socket_.get(), SHUT_RDWR);
}

Client::~Client() {
    if (getpid() != owner_) return;
    leave();
    inbox_.stop();
    // Calls of other threads have ended, and must have returned before this object goes.
    calls_.wait_until_idle();
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

// Without a reply: if the daemon is gone, nobody needs to know it.
void Client::tell(const wire::FromRank& message) {
    if (getpid() == owner_) write_frame(to_frame(message));
}

Result<wire::Reply> Client::call(wire::Request request, std::chrono::milliseconds timeout) {
    if (getpid() != owner_) return in_a_fork();
    // The thread that delivers answers would wait for itself.
    if (inbox_.is_own_thread())
        return error(DP_ERROR_INVALID,
                     "a call-back of dp_on_event cannot wait; let another thread make this call");
    PendingCalls::Call call(calls_);
    if (call.has_result()) return call.take_result();
    request.set_id(call.id());
    request.set_timeout_ms(timeout.count());
    const std::string frame = to_frame(wrap(&wire::FromRank::mutable_request, std::move(request)));
    // A relay wraps it once more.
    if (frame.size() > kMaxFrame - 64)
        return error(DP_ERROR_TOO_LARGE,
                     "a request of " + std::to_string(frame.size()) + " bytes is too large");
    if (!write_frame(frame) && errno == EAGAIN)
        return error(DP_ERROR_LOST, "this node's rendezvous daemon does not answer (it takes no request)");
    // If it could not be sent, the end of the input says why.
    const bool answered = wait_awake(timeout + kDaemonPatience, [&](std::chrono::milliseconds slice) {
        const auto end = steady_now() + slice;
        inbox_.read_until([&] { return call.has_result(); }, end);
        return call.wait_for(end - steady_now());
    });
    if (!answered) return error(DP_ERROR_LOST, "this node's rendezvous daemon does not answer (no reply)");
    return call.take_result();
}

void Client::tell_ready() {
    tell(wrap(&wire::FromRank::mutable_ready));
}

void Client::tell_enable_rejoin() {
    tell(wrap(&wire::FromRank::mutable_enable_rejoin));
}

Result<wire::NextWorld> Client::rejoin(std::chrono::milliseconds timeout) {
    if (getpid() != owner_) return in_a_fork();
    if (inbox_.is_own_thread())
        return error(DP_ERROR_INVALID, "a call-back of dp_on_event cannot wait; let another thread rejoin");
    const auto start = steady_now();
    const auto is_told = [this] {  // perhaps since an earlier call that timed out
        const std::lock_guard guard(next_mutex_);
        return next_.has_value();
    };
    // A call that nobody answers ends with the generation.
    PendingCalls::Call end(calls_);
    const bool ends = wait_awake(timeout, [&](std::chrono::milliseconds slice) {
        const auto until = steady_now() + slice;
        inbox_.read_until([&] { return end.has_result() || is_told(); }, until);
        return is_told() || end.wait_for(until - steady_now());
    });
    if (!ends)
        return error(
            DP_ERROR_TIMEOUT,
            "no rank's death was reported in time, so there is no next generation to join (dp_rejoin)");
    if (is_told()) {
        const std::lock_guard guard(next_mutex_);
        return *std::exchange(next_, std::nullopt);
    }
    if (const auto why = end.take_result(); why.error().status != DP_ERROR_PEER_LOST)
        return tl::unexpected(why.error());
    const auto generation = [this] {
        const std::lock_guard guard(next_mutex_);
        return generation_;
    };
    // Before it is told: the answer, with the next generation's number, may be faster than this thread.
    if (const uint32_t ends_now = generation(); std::exchange(left_generation_, ends_now) != ends_now) {
        wire::FromRank message;
        message.mutable_rejoin()->set_generation(ends_now);
        tell(message);
    }
    const auto is_over = [&] { return next_ || !calls_.lost_a_peer(); };
    const auto is_over_now = [&] {
        const std::lock_guard guard(next_mutex_);
        return is_over();
    };
    const auto left = std::max(timeout - (steady_now() - start), std::chrono::milliseconds(0));
    const bool told = wait_awake(left, [&](std::chrono::milliseconds slice) {
        const auto until = steady_now() + slice;
        inbox_.read_until(is_over_now, until);
        std::unique_lock lock(next_mutex_);
        return next_changed_.wait_for(lock, until - steady_now(), is_over);
    });
    const std::lock_guard guard(next_mutex_);
    if (!next_ && told) {
        PendingCalls::Call last(calls_);
        return tl::unexpected(last.take_result().error());
    }
    if (!next_)
        return error(DP_ERROR_TIMEOUT,
                     "ranks of the last generation have not ended yet, so the next has not begun; call "
                     "dp_rejoin again");
    return *std::exchange(next_, std::nullopt);
}

void Client::tell_progress(uint64_t step) {
    phases_.end_step(step);
    const std::unique_lock guard(write_mutex_, std::try_to_lock);
    if (!guard) return;
    // Most calls end here, so what costs more than a clock comes after it.
    const auto now = std::chrono::steady_clock::now();
    if (now < progress_told_ + kProgressEvery || getpid() != owner_) return;
    // A stopped daemon must still have room for calls, so at most one of these is unread.
    int unread = 0;
    if (ioctl(socket_.get(), SIOCOUTQ, &unread) != 0 || unread > 0) return;
    wire::FromRank message;
    message.mutable_progress()->set_step(step);
    const std::string frame = to_frame(message);
    progress_told_ = now;
    const ssize_t sent = send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // A unix socket takes a frame this small as a whole; the next one would complete a half one.
    if (sent > 0 && static_cast<size_t>(sent) < frame.size()) shutdown(socket_.get(), SHUT_RDWR);
}

bool Client::is_fork() const {
    const Phases::Page page = phases_.page();
    return page == Phases::Page::parents || (page == Phases::Page::none && getpid() != owner_);
}

void Client::tell_page(std::optional<int> made) {
    if (!made) return;
    wire::FromRank message;
    message.mutable_phases()->set_fd(*made);
    tell(message);
}

Result<void> Client::enter_phase(dp_phase_kind phase) {
    if (is_fork()) return in_a_fork();
    const auto entered = phases_.enter(static_cast<uint64_t>(phase));
    if (!entered) return error(DP_ERROR_INVALID, entered.error().message);
    tell_page(*entered);
    return {};
}

Result<void> Client::log_scalar(std::string_view name, double value) {
    if (is_fork()) return in_a_fork();
    const auto logged = phases_.log(name, value);
    if (!logged) return error(DP_ERROR_INVALID, logged.error().message);
    tell_page(logged->made);
    if (!logged->others.empty())
        return error(DP_ERROR_TOO_LARGE, "a rank logs at most " + std::to_string(kMostScalars) +
                                             " scalars; \"" + std::string(name) +
                                             "\" would be one more than " + logged->others);
    return {};
}

uint64_t Client::on_event(Events::Callback callback) {
    if (getpid() == owner_) inbox_.start();
    return events_.add(std::move(callback));
}

uint64_t Client::next_sequence(const std::string& group, const std::vector<uint32_t>& members) {
    std::lock_guard guard(sequences_mutex_);
    return sequences_[{group, members}]++;
}

void Client::deliver(const wire::ToRank* message) {
    if (!message) return end({DP_EVENT_LOST, kDaemonGone, {}});
    if (message->has_abort())
        return end({DP_EVENT_ENDING,
                    message->abort().reason(),
                    {message->abort().dead().begin(), message->abort().dead().end()}});
    if (message->has_deaths())
        return events_.happen({DP_EVENT_DEATHS,
                               message->deaths().reason(),
                               {message->deaths().ranks().begin(), message->deaths().ranks().end()}});
    if (message->has_peer_lost()) return lose_peer(message->peer_lost());
    if (message->has_next_world()) return begin_anew(message->next_world());
    calls_.answer(message->reply());
}

void Client::lose_peer(const wire::PeerLost& lost) {
    const StepEvent event{DP_EVENT_PEER_LOST, lost.reason(), {lost.dead().begin(), lost.dead().end()}};
    if (calls_.end({DP_ERROR_PEER_LOST, lost.reason()})) events_.happen(event);
}

void Client::begin_anew(const wire::NextWorld& world) {
    events_.begin_anew();
    {
        const std::lock_guard guard(sequences_mutex_);
        sequences_.clear();
    }
    const std::lock_guard guard(next_mutex_);
    generation_ = world.plan().generation();
    next_ = world;
    calls_.begin_anew();
    next_changed_.notify_all();
}

void Client::end(const StepEvent& why) {
    const dp_status status = why.kind == DP_EVENT_ENDING ? DP_ERROR_ABORTED : DP_ERROR_LOST;
    if (calls_.end({status, why.reason})) events_.happen(why);
    const std::lock_guard guard(next_mutex_);
    next_changed_.notify_all();
}

}  // namespace dp
