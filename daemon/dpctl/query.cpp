// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "common/errno_text.hpp"
#include "common/fd.hpp"
#include "common/text.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{5};
// For a socket that is crowded, beside one that answers.
constexpr std::chrono::milliseconds kPatienceWithOthers{200};
constexpr std::chrono::milliseconds kBetweenTries{20};
constexpr std::string_view kPrefix = "slurm-dp/";

// Connected, and its daemon this user's; else why not. nullopt: as many wait to be taken as may.
std::optional<Try<Fd>> try_connect(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof address.sun_path)
        return Try<Fd>(fail("@" + name + " is too long for a socket name"));
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        if (fd && errno == EAGAIN) return std::nullopt;
        return Try<Fd>(fail("cannot reach the rendezvous daemon at @" + name + ": " + errno_text(errno)));
    }
    ucred peer{};
    socklen_t peer_size = sizeof peer;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0 || peer.uid != getuid())
        return Try<Fd>(fail("it belongs to user id " + std::to_string(peer.uid)));
    const timeval patience{kPatience.count(), 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    fcntl(fd.get(), F_SETFL, 0);
    return Try<Fd>(std::move(fd));
}

Try<Fd> connect_to(const std::string& name) {
    const auto end = Clock::now() + kPatience;
    for (;;) {
        if (auto tried = try_connect(name)) return std::move(*tried);
        if (Clock::now() >= end)
            return fail("the rendezvous daemon at @" + name +
                        " takes no connection: it is stopped, or crowded");
        std::this_thread::sleep_for(kBetweenTries);
    }
}

// Those of this user among the sockets. A crowded one holds nobody up for long where there is another; it may
// be anybody's. `crowded`: those that stayed so.
std::vector<StepConnection> connect_all(std::vector<DaemonSocket> sockets, std::string& crowded) {
    std::vector<StepConnection> mine;
    const auto begin = Clock::now();
    for (;;) {
        std::erase_if(sockets, [&](const DaemonSocket& socket) {
            auto tried = try_connect(socket.name);
            if (tried && *tried) mine.push_back({socket.step, std::move(**tried)});
            return tried.has_value();
        });
        const auto waited = Clock::now() - begin;
        if (sockets.empty() || waited >= kPatience || (!mine.empty() && waited >= kPatienceWithOthers)) break;
        std::this_thread::sleep_for(kBetweenTries);
    }
    for (const auto& socket : sockets) crowded += (crowded.empty() ? "" : ", ") + socket.step;
    return mine;
}

constexpr const char* kOtherVersion = "what answers there is no rendezvous daemon of this version";

}  // namespace

tl::expected<wire::ToRank, NoAnswer> ask_step(int socket, const wire::FromRank& question) {
    errno = 0;
    const bool sent = send_all(socket, to_frame(question));
    const auto body = sent ? receive_frame(socket, kMaxFrame) : std::nullopt;
    if (!body && (errno == EAGAIN || errno == EWOULDBLOCK))
        return tl::make_unexpected(
            NoAnswer{"the rendezvous daemon does not answer: is it stopped, or its broker's node silent?"});
    if (!body) return tl::make_unexpected(NoAnswer{"its rendezvous daemon on this node has left", true});
    auto answer = parse_message<wire::ToRank>(*body);
    if (!answer) return tl::make_unexpected(NoAnswer{kOtherVersion});
    if (answer->has_reply())
        return tl::make_unexpected(
            NoAnswer{printable(answer->reply().error(), 600), answer->reply().status() == wire::LOST});
    return std::move(*answer);
}

// The daemon that is meant; else one line that says what to give.
Try<StepConnection> connect_step(const std::string& asked, const std::string& verb) {
    if (const char* own = std::getenv("DP_SOCKET"); own && *own == '@' && asked.empty()) {
        auto connection = connect_to(own + 1);
        if (!connection) return tl::make_unexpected(connection.error());
        const auto parts = split(own + 1, '/');
        return StepConnection{std::string(parts.size() == 3 ? parts[1] : "of this task"),
                              std::move(*connection)};
    }
    std::ifstream file("/proc/net/unix");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    auto sockets = daemon_sockets(text);
    std::erase_if(sockets,
                  [&](const DaemonSocket& socket) { return !asked.empty() && !is_step(socket.step, asked); });
    std::string crowded;
    auto mine = connect_all(std::move(sockets), crowded);
    if (mine.size() == 1) return std::move(mine.front());
    if (mine.empty() && !crowded.empty())
        return fail("step " + crowded +
                    " on this node takes no connection: if it is yours, its rendezvous daemon is stopped, or "
                    "crowded; try again");
    if (mine.empty())
        return fail("there is no step of yours with a world on this node" +
                    (asked.empty() ? "" : " that is " + printable(asked, 40)) +
                    "; run it on one of the step's nodes, as its user (srun --overlap --jobid=JOB -w NODE "
                    "dpctl " +
                    verb + ")");
    std::string steps;
    for (const auto& one : mine) steps += (steps.empty() ? "" : ", ") + one.step;
    return fail("there are several steps of yours on this node (" + steps + "); name one: dpctl " + verb +
                " " + mine.front().step);
}

std::vector<DaemonSocket> daemon_sockets(std::string_view proc_net_unix) {
    std::vector<DaemonSocket> found;
    for (std::string_view line : split(proc_net_unix, '\n')) {
        // Num RefCount Protocol Flags Type St Inode Path; 00010000 is a socket that is listened on.
        const size_t at = line.find(" @" + std::string(kPrefix));
        if (at == std::string_view::npos || line.find(" 00010000 ") == std::string_view::npos) continue;
        const std::string_view name = line.substr(at + 2);
        const auto parts = split(name, '/');
        if (parts.size() != 3) continue;
        DaemonSocket socket{std::string(name), std::string(parts[1])};
        if (std::find(found.begin(), found.end(), socket) == found.end()) found.push_back(std::move(socket));
    }
    return found;
}

bool is_step(std::string_view step, std::string_view asked) {
    return step == asked || (step.starts_with(asked) && step.substr(asked.size()).starts_with('.'));
}

Try<QueriedStep> query_step(const std::string& asked) {
    auto found = connect_step(asked, "status");
    if (!found) return tl::make_unexpected(found.error());
    wire::FromRank question;
    question.mutable_status();
    auto answer = ask_step(found->socket.get(), question);
    if (!answer) return fail(answer.error().message);
    if (!answer->has_status()) return fail(kOtherVersion);
    return QueriedStep{found->step, std::move(*answer->mutable_status())};
}

int complain(const std::string& text) {
    std::fprintf(stderr, "dpctl: %s\n", text.c_str());
    return 1;
}

int print(const std::string& text) {
    return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0
               ? complain("cannot write the answer")
               : 0;
}

}  // namespace dp
