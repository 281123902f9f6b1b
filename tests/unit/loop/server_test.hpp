// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the loop's servers share: an event loop that runs until something has happened, and the
// other ends of their sockets.
#pragma once

#include <event2/event.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/fd.hpp"
#include "loop/log.hpp"
#include "loop/timer.hpp"

namespace dp {

struct FreeBase {
    void operator()(event_base* base) const { event_base_free(base); }
};
using EventBase = std::unique_ptr<event_base, FreeBase>;

class ServerTest : public testing::Test {
 protected:
    using Clock = std::chrono::steady_clock;
    EventBase base{event_base_new()};
    RejectedPeers rejected;

    // Runs the loop until `done` holds, at most so long; → whether it does.
    template <typename Done>
    bool run(Done done, Clock::duration time = std::chrono::seconds(10)) {
        Timer tick(base.get(), [] {});
        for (const auto end = Clock::now() + time; !done() && Clock::now() < end;) {
            tick.after(Time(5));
            event_base_loop(base.get(), EVLOOP_ONCE);
        }
        return done();
    }
    void pause(Clock::duration time = std::chrono::milliseconds(50)) {
        run([] { return false; }, time);
    }

    // All that comes until the server closes; nullopt where it does not.
    std::optional<std::string> until_closed(const Fd& fd, Clock::duration time = std::chrono::seconds(10)) {
        std::string got;
        bool closed = false;
        run(
            [&] {
                char chunk[4096];
                const ssize_t n = recv(fd.get(), chunk, sizeof chunk, 0);
                if (n > 0) got.append(chunk, static_cast<size_t>(n));
                closed = closed || n == 0 || (n < 0 && errno == ECONNRESET);
                return closed;
            },
            time);
        return closed ? std::optional(got) : std::nullopt;
    }
    static void say(const Fd& fd, const std::string& bytes) {
        ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }

    // Sockets of the abstract name space.
    static Fd bound_to(const std::string& name) { return local(name, bind); }
    static Fd connected_to(const std::string& name) { return local(name, connect); }

 private:
    static Fd local(const std::string& name, int (*take)(int, const sockaddr*, socklen_t)) {
        Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        EXPECT_EQ(take(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
                  0);
        return fd;
    }
};

}  // namespace dp
