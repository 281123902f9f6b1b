// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "common/errno_text.hpp"
#include "common/fd.hpp"
#include "common/text.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

constexpr timeval kPatience{5, 0};
constexpr std::string_view kPrefix = "slurm-dp/";

// Connected, and its daemon this user's; else why not.
Try<Fd> connect_to(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof address.sun_path) return fail("@" + name + " is too long for a socket name");
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
        return fail("cannot reach the rendezvous daemon at @" + name + ": " + errno_text(errno));
    ucred peer{};
    socklen_t peer_size = sizeof peer;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0 || peer.uid != getuid())
        return fail("it belongs to user id " + std::to_string(peer.uid));
    return fd;
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
    std::vector<StepConnection> mine;
    for (const auto& socket : daemon_sockets(text)) {
        if (!asked.empty() && !is_step(socket.step, asked)) continue;
        if (auto connection = connect_to(socket.name)) mine.push_back({socket.step, std::move(*connection)});
    }
    if (mine.size() == 1) return std::move(mine.front());
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
