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
#include <map>
#include <memory>
#include <set>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"

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
constexpr Seconds kLongEnough{0.05};
constexpr int kPings = 8;
constexpr std::chrono::milliseconds kIntroduction{500};
constexpr double kSlowLink = 1.0 / 3;                      // of the median
constexpr double kSlowAnyway = 100e6 / 8;                  // bytes per second
constexpr double kClocksApart = 1, kMungesPatience = 300;  // seconds

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

// Larger and larger messages until one takes long enough. nullopt: one does not get through.
std::optional<double> bandwidth(const Peer& peer, Ask direction, double round_trip) {
    for (uint64_t size = kFirstSize;; size *= 4) {
        const Request request{direction, size};
        double time = 0;
        const auto begin = Clock::now();
        if (!peer.send(&request, sizeof request)) return std::nullopt;
        if (direction == Ask::take ? !peer.send_some(size) || !peer.receive(&time, sizeof time)
                                   : !peer.receive_some(size))
            return std::nullopt;
        const Seconds took = Clock::now() - begin;
        if (took >= kLongEnough || size * 4 > kLargestSize)
            return static_cast<double>(size) / std::max(took.count() - round_trip, 1e-6);
    }
}

// What a good link has: with three nodes, one of which is slow, most are not.
double upper_quartile(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() * 3 / 4];
}

// Of an even number of values the middle one that is nearer zero: with three nodes, one of which is wrong, the others are not.
double cautious_median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    const double upper = values[values.size() / 2], lower = values[(values.size() - 1) / 2];
    return std::abs(lower) < std::abs(upper) ? lower : upper;
}

std::string in_megabits(double bytes_per_second) {
    return fmt::format("{:.3g} Mbit/s", bytes_per_second * 8 / 1e6);
}

// Nodes all of whose links are bad, so that it is theirs and not their partners'.
std::set<uint32_t> nodes_at_fault(const std::vector<Link>& links, const std::vector<const Link*>& bad) {
    std::map<uint32_t, size_t> all, theirs;
    for (const Link& link : links) ++all[link.from], ++all[link.to];
    for (const Link* link : bad) ++theirs[link->from], ++theirs[link->to];
    std::set<uint32_t> nodes;
    for (const auto& [node, count] : theirs)
        if (count == all[node] && all[node] > 1) nodes.insert(node);
    // If it is everybody's, it is nobody's own.
    return nodes.size() * 2 > all.size() ? std::set<uint32_t>() : nodes;
}

Finding check_bandwidth(const std::vector<Link>& links, const std::vector<std::string>& hosts) {
    std::vector<double> all;
    for (const Link& link : links)
        if (link.problem.empty()) all.insert(all.end(), {link.there, link.back});
    const double usual = upper_quartile(all);
    std::vector<const Link*> bad;
    for (const Link& link : links)
        if (!link.problem.empty() ||
            std::min(link.there, link.back) < std::max(kSlowLink * usual, kSlowAnyway))
            bad.push_back(&link);
    const std::string usually = all.empty() ? "" : ", the usual is " + in_megabits(usual);
    if (bad.empty())
        return ok("links", fmt::format("{} between {} nodes, {} to {}{}", plural(links.size(), "pair"),
                                       hosts.size(), in_megabits(*std::ranges::min_element(all)),
                                       in_megabits(*std::ranges::max_element(all)), usually));
    const std::set<uint32_t> nodes = nodes_at_fault(links, bad);
    bool is_broken = false;
    std::vector<std::string> told;
    for (const uint32_t node : nodes) {
        double best = 0;
        std::string problem;
        for (const Link* link : bad)
            if (link->from == node || link->to == node) {
                best = std::max(best, std::min(link->there, link->back));
                if (!link->problem.empty()) problem = link->problem;
            }
        is_broken |= !problem.empty();
        told.push_back(hosts[node] +
                       " with all others: " + (problem.empty() ? "at most " + in_megabits(best) : problem));
    }
    for (const Link* link : bad) {
        if (nodes.contains(link->from) || nodes.contains(link->to)) continue;
        is_broken |= !link->problem.empty();
        told.push_back(
            hosts[link->from] + " with " + hosts[link->to] + ": " +
            (link->problem.empty() ? in_megabits(std::min(link->there, link->back)) : link->problem));
    }
    constexpr size_t kMost = 5;
    const size_t more = told.size() > kMost ? told.size() - kMost : 0;
    told.resize(std::min(told.size(), kMost));
    return (is_broken ? fault : warning)(
        "links", join(told, "; ") + (more ? fmt::format("; and {} more", more) : "") + usually,
        is_broken ? "ranks there cannot meet, or hang at their first large message"
                  : "every all-reduce is as slow as the slowest link",
        nodes.empty() ? "check the cables and switch ports between them" : "leave it out: --exclude=" + [&] {
            std::vector<std::string> names;
            for (const uint32_t node : nodes) names.push_back(hosts[node]);
            return compress_hostlist(names);
        }());
}

Finding check_clocks(const std::vector<Link>& links, const std::vector<std::string>& hosts) {
    std::map<uint32_t, std::vector<double>> ahead;
    for (const Link& link : links) {
        if (!link.problem.empty()) continue;
        ahead[link.to].push_back(link.ahead);
        ahead[link.from].push_back(-link.ahead);
    }
    if (ahead.empty()) return ok("clocks", "not compared: no link works");
    double worst = 0;
    std::vector<std::string> apart;
    for (const auto& [node, all] : ahead) {
        const double by = cautious_median(all);
        worst = std::abs(by) > std::abs(worst) ? by : worst;
        if (std::abs(by) > kClocksApart)
            apart.push_back(
                fmt::format("{} is {:.3g} s {}", hosts[node], std::abs(by), by > 0 ? "ahead" : "behind"));
    }
    if (apart.empty()) return ok("clocks", fmt::format("at most {:.2g} ms apart", std::abs(worst) * 1e3));
    return (std::abs(worst) > kMungesPatience ? fault : warning)(
        "clocks", join(apart, ", "),
        "munge refuses credentials that are minutes old, and the nodes' logs cannot be compared",
        "systemctl enable --now chronyd there; chronyc tracking");
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

Findings check_links(const std::vector<Link>& links, const std::vector<std::string>& hosts) {
    if (links.empty()) return {};
    return {check_bandwidth(links, hosts), check_clocks(links, hosts)};
}

}  // namespace dp::doctor
