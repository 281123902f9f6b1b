// SPDX-License-Identifier: Apache-2.0
#include "doctor/links.hpp"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/errno_text.hpp"
#include "base/text.hpp"

namespace dp::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A request is a word of this and a number of bytes; all integers are in the order of the machines, which are alike in a step.
enum class Ask : uint64_t { clock = 1, take = 2, give = 3 };
struct Request {
    Ask ask = Ask::clock;
    uint64_t size = 0;
};
constexpr uint64_t kFirstSize = 64 << 10, kLargestSize = 64 << 20;
// A transfer that takes this long says enough.
constexpr Seconds kLongEnough{0.05}, kEnough{0.4};
constexpr int kTries = 3;
constexpr int kPings = 8;
constexpr std::chrono::milliseconds kIntroduction{200};

struct FreeAddress {
    void operator()(addrinfo* one) const { freeaddrinfo(one); }
};
using Address = std::unique_ptr<addrinfo, FreeAddress>;

Address numeric(const std::string& address, uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* raw = nullptr;
    if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &raw) != 0) return nullptr;
    return Address(raw);
}

int milliseconds_until(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
}

bool is_ready(int socket, short what, Clock::time_point deadline) {
    pollfd one{socket, what, 0};
    return poll(&one, 1, milliseconds_until(deadline)) == 1;
}

// A connection whose every transfer must end by the deadline.
class Peer {
 public:
    Peer(Fd socket, Clock::time_point deadline) : socket_(std::move(socket)), deadline_(deadline) {
        const int yes = 1;
        setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }

    bool send(const void* data, size_t size) const {
        const auto* at = static_cast<const char*>(data);
        while (size > 0) {
            if (Clock::now() > deadline_) return false;
            const ssize_t sent = ::send(socket_.get(), at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent > 0) {
                at += sent;
                size -= static_cast<size_t>(sent);
            } else if ((errno != EAGAIN && errno != EINTR) || !is_ready(socket_.get(), POLLOUT, deadline_)) {
                return false;
            }
        }
        return true;
    }
    bool receive(void* data, size_t size) const {
        auto* at = static_cast<char*>(data);
        while (size > 0) {
            if (Clock::now() > deadline_) return false;
            const ssize_t got = recv(socket_.get(), at, size, MSG_DONTWAIT);
            if (got > 0) {
                at += got;
                size -= static_cast<size_t>(got);
            } else if (got == 0 || (errno != EAGAIN && errno != EINTR) ||
                       !is_ready(socket_.get(), POLLIN, deadline_)) {
                return false;
            }
        }
        return true;
    }
    bool send_some(uint64_t size) const {
        static const std::vector<char> kBytes(1 << 20, 'x');
        for (uint64_t left = size; left > 0; left -= std::min<uint64_t>(left, kBytes.size()))
            if (!send(kBytes.data(), std::min<uint64_t>(left, kBytes.size()))) return false;
        return true;
    }
    bool receive_some(uint64_t size) const {
        std::vector<char> bytes(1 << 20);
        for (uint64_t left = size; left > 0; left -= std::min<uint64_t>(left, bytes.size()))
            if (!receive(bytes.data(), std::min<uint64_t>(left, bytes.size()))) return false;
        return true;
    }

 private:
    Fd socket_;
    Clock::time_point deadline_;
};

double wall_clock() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

bool answer(const Peer& peer) {
    Request request;
    if (!peer.receive(&request, sizeof request)) return false;
    const double now = wall_clock();
    switch (request.ask) {
        case Ask::clock:
            return peer.send(&now, sizeof now);
        case Ask::take:
            return request.size <= kLargestSize && peer.receive_some(request.size) &&
                   peer.send(&now, sizeof now);
        case Ask::give:
            return request.size <= kLargestSize && peer.send_some(request.size);
    }
    return false;
}

// Cristian's algorithm: of some exchanges the quickest tells most.
bool compare_clocks(const Peer& peer, Link& link) {
    double quickest = HUGE_VAL, ahead = 0;
    for (int i = 0; i < kPings; ++i) {
        const Request request;
        const double sent = wall_clock();
        double theirs = 0;
        if (!peer.send(&request, sizeof request) || !peer.receive(&theirs, sizeof theirs)) return false;
        const double arrived = wall_clock();
        if (arrived - sent >= quickest) continue;
        quickest = arrived - sent;
        ahead = theirs - (sent + arrived) / 2;
    }
    link.round_trip = quickest;
    link.ahead = ahead;
    return true;
}

// Larger and larger messages until one takes long enough: the best of some of these, because a node may be busy with something else for
// a moment. nullopt: one does not get through.
std::optional<double> bandwidth(const Peer& peer, Ask direction, double round_trip) {
    double best = 0;
    Seconds spent{0};
    int tries = 0;
    for (uint64_t size = kFirstSize;;) {
        const Request request{direction, size};
        double time = 0;
        const auto begin = Clock::now();
        if (!peer.send(&request, sizeof request)) return std::nullopt;
        if (direction == Ask::take ? !peer.send_some(size) || !peer.receive(&time, sizeof time)
                                   : !peer.receive_some(size))
            return std::nullopt;
        const Seconds took = Clock::now() - begin;
        if (took < kLongEnough && size * 4 <= kLargestSize) {
            size *= 4;
            continue;
        }
        best = std::max(best, static_cast<double>(size) / std::max(took.count() - round_trip, 1e-6));
        spent += took;
        if (++tries == kTries || spent >= kEnough) return best;
    }
}

}  // namespace

Try<LinkServer> LinkServer::open(const std::string& address) {
    LinkServer server;
    const Address where = numeric(address, 0);
    if (!where) return fail(printable(address) + " is not an address");
    server.listener_.reset(socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (!server.listener_ || bind(server.listener_.get(), where->ai_addr, where->ai_addrlen) != 0 ||
        listen(server.listener_.get(), 8) != 0 ||
        getsockname(server.listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
        return fail("cannot listen at " + address + ": " + errno_text(errno));
    server.port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                     : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    return server;
}

// Who does not know the token, or is late for an earlier round, is sent away.
void LinkServer::serve(const LinkToken& token, std::chrono::milliseconds patience) const {
    const auto deadline = Clock::now() + patience;
    while (is_ready(listener_.get(), POLLIN, deadline)) {
        Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) continue;
        // A stranger may stay silent.
        const auto introduced = std::min(deadline, Clock::now() + kIntroduction);
        LinkToken theirs{};
        if (!is_ready(socket.get(), POLLIN, introduced) ||
            recv(socket.get(), &theirs, sizeof theirs, MSG_DONTWAIT) != sizeof theirs || theirs != token)
            continue;
        const Peer peer(std::move(socket), deadline);
        while (answer(peer)) {
        }
        return;
    }
}

Link measure_link(const std::string& address, uint16_t port, const LinkToken& token,
                  std::chrono::milliseconds patience) {
    Link link;
    const auto deadline = Clock::now() + patience;
    const Address where = numeric(address, port);
    Fd socket(where ? ::socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1);
    if (!socket) {
        link.problem = printable(address) + " is not an address";
        return link;
    }
    int error = connect(socket.get(), where->ai_addr, where->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (!is_ready(socket.get(), POLLOUT, deadline))
            error = ETIMEDOUT;
        else
            getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
        link.problem = "no connection to " + address + ": " + errno_text(error);
        return link;
    }
    const Peer peer(std::move(socket), deadline);
    if (!peer.send(&token, sizeof token) || !compare_clocks(peer, link)) {
        link.problem = "connected, but no answer within " + words(patience);
        return link;
    }
    const auto there = bandwidth(peer, Ask::take, link.round_trip);
    const auto back = there ? bandwidth(peer, Ask::give, link.round_trip) : std::nullopt;
    if (!back)
        link.problem = "small messages get through, large ones do not within " + words(patience) +
                       ": different MTUs, or a link that hardly works";
    link.there = there.value_or(0);
    link.back = back.value_or(0);
    return link;
}

}  // namespace dp::doctor
