// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <fcntl.h>
#include <pwd.h>
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
#include <sstream>
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

std::string text_of(const char* path) {
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), {});
}

// Connected, and its daemon that user's; else why not. nullopt: as many wait to be taken as may.
std::optional<Try<Fd>> try_connect(const std::string& name, uid_t user) {
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
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0 || peer.uid != user)
        return Try<Fd>(fail("it belongs to user id " + std::to_string(peer.uid)));
    const timeval patience{kPatience.count(), 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    fcntl(fd.get(), F_SETFL, 0);
    return Try<Fd>(std::move(fd));
}

Try<Fd> connect_to(const std::string& name, uid_t user) {
    const auto end = Clock::now() + kPatience;
    for (;;) {
        if (auto tried = try_connect(name, user)) return std::move(*tried);
        if (Clock::now() >= end)
            return fail("the rendezvous daemon at @" + name +
                        " takes no connection: it is stopped, or crowded");
        std::this_thread::sleep_for(kBetweenTries);
    }
}

// Those among the sockets that are whose they say. A crowded one holds nobody up for long where there is
// another; it may be anybody's. `crowded`: those that stayed so.
std::vector<StepConnection> connect_all(std::vector<RanksSocketName> sockets, bool for_root,
                                        std::string& crowded) {
    std::vector<StepConnection> found;
    const auto begin = Clock::now();
    for (;;) {
        std::erase_if(sockets, [&](const RanksSocketName& socket) {
            auto tried = try_connect(socket.text(), for_root ? socket.user : getuid());
            if (tried && *tried) found.push_back({socket.step, socket.user, std::move(**tried)});
            return tried.has_value();
        });
        const auto waited = Clock::now() - begin;
        if (sockets.empty() || waited >= kPatience || (!found.empty() && waited >= kPatienceWithOthers))
            break;
        std::this_thread::sleep_for(kBetweenTries);
    }
    for (const auto& socket : sockets) crowded += (crowded.empty() ? "" : ", ") + socket.step;
    return found;
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
        auto connection = connect_to(own + 1, getuid());
        if (!connection) return tl::make_unexpected(connection.error());
        const auto name = parse_ranks_socket_name(own + 1);
        return StepConnection{name ? name->step : "of this task", getuid(), std::move(*connection)};
    }
    const uid_t me = outer_user(text_of("/proc/self/uid_map"), getuid());
    const bool root = me == 0;
    auto sockets = daemon_sockets(text_of("/proc/net/unix"));
    // Another user's is not even knocked at: his step would mention it.
    std::erase_if(sockets, [&](const RanksSocketName& socket) {
        return (!asked.empty() && !is_step(socket.step, asked)) || (!root && socket.user != me);
    });
    std::string crowded;
    auto found = connect_all(std::move(sockets), root, crowded);
    if (found.size() == 1) return std::move(found.front());
    const std::string whose = root ? "" : " of yours";
    if (found.empty() && !crowded.empty())
        return fail("step " + crowded +
                    " on this node takes no connection: if it is yours, its rendezvous daemon is stopped, or "
                    "crowded; try again");
    if (found.empty())
        return fail("there is no step" + whose + " with a world on this node" +
                    (asked.empty() ? "" : " that is " + printable(asked, 40)) +
                    "; run it on one of the step's nodes, as its user (srun --overlap --jobid=JOB -w NODE "
                    "dpctl " +
                    verb + ") or root");
    std::string steps;
    for (const auto& one : found)
        steps += (steps.empty() ? "" : ", ") + one.step + (root ? " of " + user_name(one.user) : "");
    return fail("there are several steps" + whose + " on this node (" + steps + "); name one: dpctl " + verb +
                " " + found.front().step);
}

std::vector<RanksSocketName> daemon_sockets(std::string_view proc_net_unix) {
    std::vector<RanksSocketName> found;
    for (std::string_view line : split(proc_net_unix, '\n')) {
        // Num RefCount Protocol Flags Type St Inode Path; 00010000 is a socket that is listened on.
        const size_t at = line.find(" @");
        if (at == std::string_view::npos || line.find(" 00010000 ") == std::string_view::npos) continue;
        auto name = parse_ranks_socket_name(line.substr(at + 2));
        if (name && std::find(found.begin(), found.end(), *name) == found.end())
            found.push_back(std::move(*name));
    }
    return found;
}

uid_t outer_user(std::string_view uid_map, uid_t user) {
    for (std::string_view line : split(uid_map, '\n')) {
        std::istringstream words{std::string(line)};
        uint64_t inside = 0, outside = 0, count = 0;
        if (words >> inside >> outside >> count && user >= inside && user - inside < count)
            return static_cast<uid_t>(outside + user - inside);
    }
    return user;
}

std::string user_name(uid_t user) {
    const passwd* known = getpwuid(user);
    return known ? known->pw_name : std::to_string(user);
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
