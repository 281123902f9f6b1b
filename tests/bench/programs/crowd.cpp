// SPDX-License-Identifier: Apache-2.0
#include "crowd.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/fd.hpp"
#include "failing.hpp"
#include "latencies.hpp"

namespace dp::bench {
namespace {

constexpr size_t kPerAddress = 4000;
constexpr int kPatienceMs = 60000;

class Rank {
 public:
    explicit Rank(const Script& script) : script_(script) {}

    void connect(const sockaddr_in& server, in_addr_t own_address) {
        socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!socket_) die_of_errno("socket");
        const int on = 1;
        setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        // Without the two minutes in which a port waits after an orderly close.
        const linger at_once{1, 0};
        setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = own_address;
        if (bind(fd(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) die_of_errno("bind");
        if (::connect(fd(), reinterpret_cast<const sockaddr*>(&server), sizeof server) != 0 &&
            errno != EINPROGRESS)
            die_of_errno("connect");
    }

    // As far as it gets without waiting. → whether this was the end of its script.
    bool go_on() {
        if (at_ == script_.size()) return false;
        while (at_ < script_.size()) {
            if (!say() || !hear()) return false;
            ++at_;
            said_ = heard_ = 0;
        }
        return true;
    }

    int fd() const { return socket_.get(); }

 private:
    const Script& script_;
    Fd socket_;
    size_t at_ = 0;
    size_t said_ = 0;
    size_t heard_ = 0;

    bool say() {
        const std::string& words = script_[at_].say;
        while (said_ < words.size()) {
            const ssize_t n = send(fd(), words.data() + said_, words.size() - said_, MSG_NOSIGNAL);
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
            if (n < 0) die_of_errno("a rank cannot say its words");
            said_ += static_cast<size_t>(n);
        }
        return true;
    }

    bool hear() {
        const std::string& expected = script_[at_].hear;
        std::array<char, 4096> bytes;
        while (heard_ < expected.size()) {
            const ssize_t n = recv(fd(), bytes.data(), std::min(bytes.size(), expected.size() - heard_), 0);
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
            if (n < 0) die_of_errno("a rank cannot hear its answer");
            if (n == 0) die("the server has closed the connection of a rank");
            if (expected.compare(heard_, static_cast<size_t>(n), bytes.data(), static_cast<size_t>(n)) != 0)
                die("a rank got another answer than it should");
            heard_ += static_cast<size_t>(n);
        }
        return true;
    }
};

void watch(int epoll, const Rank& rank, uint64_t number) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.u64 = number;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, rank.fd(), &event) != 0) die_of_errno("epoll_ctl");
}

}  // namespace

sockaddr_in on_loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

std::vector<double> converse(const sockaddr_in& server, const std::vector<Script>& scripts, Sources sources) {
    const size_t count = scripts.size();
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    std::vector<Rank> ranks(scripts.begin(), scripts.end());
    std::vector<double> ms(count, 0);
    const auto start = Clock::now();
    for (size_t i = 0; i < count; ++i) {
        const auto more = sources == Sources::spread ? static_cast<uint32_t>(1 + i / kPerAddress) : 0;
        ranks[i].connect(server, htonl(INADDR_LOOPBACK + more));
        watch(epoll.get(), ranks[i], i);
    }
    std::array<epoll_event, 512> events;
    for (size_t done = 0; done < count;) {
        const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), kPatienceMs);
        if (n < 0) die_of_errno("epoll_wait");
        if (n == 0)
            die("no answer within 60 s; " + std::to_string(done) + " of " + std::to_string(count) +
                " ranks have theirs");
        for (int e = 0; e < n; ++e) {
            const size_t i = events[static_cast<size_t>(e)].data.u64;
            if (!ranks[i].go_on()) continue;
            ms[i] = ms_since(start);
            ++done;
        }
    }
    return ms;
}

}  // namespace dp::bench
