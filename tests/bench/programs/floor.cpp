// SPDX-License-Identifier: Apache-2.0
//
// The floor: what bringing N connections together costs without any protocol. A plain epoll server in a
// process of its own takes N connections, reads 64 bytes from each, and when the last has come pushes 136
// bytes to all. This process plays the ranks.
//   bench-floor CONNECTIONS ROUNDS
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/fd.hpp"
#include "crowd.hpp"
#include "failing.hpp"
#include "latencies.hpp"
#include "usage.hpp"

namespace dp::bench {
namespace {

constexpr size_t kHelloBytes = 64;
constexpr size_t kPushBytes = 136;

void watch(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die_of_errno("epoll_ctl");
}

void accept_all(int listener, int epoll, std::vector<size_t>& got) {
    for (int one; (one = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        const int on = 1;
        setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        got[static_cast<size_t>(one)] = 0;
        watch(epoll, one);
    }
}

void push_to(const std::vector<int>& arrived) {
    const std::string push(kPushBytes, 'p');
    for (int one : arrived)
        if (write(one, push.data(), push.size()) != static_cast<ssize_t>(push.size())) die_of_errno("push");
}

// Serves rounds until it is killed.
[[noreturn]] void serve(int listener, size_t expected) {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    watch(epoll.get(), listener);
    std::vector<size_t> got(65536, 0);
    std::vector<int> arrived;
    std::array<epoll_event, 512> events;
    for (;;) {
        const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), -1);
        for (int i = 0; i < n; ++i) {
            const int fd = events[static_cast<size_t>(i)].data.fd;
            if (fd == listener) {
                accept_all(listener, epoll.get(), got);
                continue;
            }
            char hello[kHelloBytes];
            const ssize_t size = read(fd, hello, sizeof hello);
            if (size <= 0) {
                close(fd);
                continue;
            }
            if ((got[static_cast<size_t>(fd)] += static_cast<size_t>(size)) == kHelloBytes)
                arrived.push_back(fd);
            if (arrived.size() < expected) continue;
            push_to(arrived);
            arrived.clear();
        }
    }
}

// A listener on any port of loopback; its address in `address`.
Fd listen_anywhere(sockaddr_in& address) {
    Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    address = on_loopback(0);
    socklen_t size = sizeof address;
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        listen(listener.get(), 65535) != 0 ||
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        die_of_errno("listen");
    return listener;
}

int run(size_t count, int rounds) {
    raise_file_limit();
    sockaddr_in address{};
    Fd listener = listen_anywhere(address);
    const pid_t server = fork();
    if (server < 0) die_of_errno("fork");
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener.get(), count);
    }
    listener.reset();
    const std::vector<Script> scripts(count,
                                      Script{{std::string(kHelloBytes, 'h'), std::string(kPushBytes, 'p')}});
    const Usage before = usage_of(server);
    for (int round = 0; round < rounds; ++round) print_round(converse(address, scripts, Sources::spread));
    const Usage after = usage_of(server);
    std::printf("{\"cpu_ms_a_round\": %.5f, \"kib_before\": %ld, \"kib_after\": %ld}\n",
                (after.cpu_ms - before.cpu_ms) / rounds, before.rss_kib, after.rss_kib);
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    return 0;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bench-floor CONNECTIONS ROUNDS\n");
        return 2;
    }
    return dp::bench::run(static_cast<size_t>(std::atol(argv[1])), std::atoi(argv[2]));
}
