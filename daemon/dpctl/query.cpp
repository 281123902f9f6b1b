// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "common/read_file.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{5};
// How long to wait at a crowded socket when another one answers.
constexpr std::chrono::milliseconds kPatienceWithOthers{200};
constexpr std::chrono::milliseconds kBetweenTries{20};

// A connection to a daemon of this user (for root: of the user in the name). nullopt: its backlog is full.
std::optional<Try<Fd>> try_connect(const std::string& name, std::optional<uid_t> named_user) {
    const auto address = AbstractAddress::of(name);
    if (!address) return Try<Fd>(fail("@" + name + " is too long for a socket name"));
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || !address->connect(fd.get())) {
        if (fd && errno == EAGAIN) return std::nullopt;
        return Try<Fd>(fail("cannot reach the rendezvous daemon at @" + name + ": " + errno_text(errno)));
    }
    const ucred peer = peer_of(fd.get()).value_or(ucred{0, static_cast<uid_t>(-1), 0});
    if (peer.uid != getuid() && !(getuid() == 0 && peer.uid == named_user))
        return Try<Fd>(fail("the daemon at @" + printable(name, 100) + " belongs to user id " +
                            std::to_string(peer.uid)));
    const timeval patience{kPatience.count(), 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    fcntl(fd.get(), F_SETFL, 0);
    return Try<Fd>(std::move(fd));
}

// Calls it until it returns true, for kPatience at most, with the time that has passed.
template <typename Attempt>
void keep_trying(Attempt attempt) {
    const auto begin = Clock::now();
    while (!attempt(Clock::now() - begin) && Clock::now() - begin < kPatience)
        std::this_thread::sleep_for(kBetweenTries);
}

Try<Fd> connect_to(const std::string& name, std::optional<uid_t> named_user) {
    std::optional<Try<Fd>> tried;
    keep_trying([&](auto) { return (tried = try_connect(name, named_user)).has_value(); });
    if (tried) return std::move(*tried);
    return fail("the rendezvous daemon at @" + name + " takes no connection: it is stopped, or crowded");
}

// The sockets that belong to whom they say. A crowded one, maybe a stranger's, delays little beside another.
std::vector<StepConnection> connect_all(std::vector<RanksSocketName> sockets, std::string& crowded) {
    std::vector<StepConnection> found;
    keep_trying([&](Clock::duration waited) {
        std::erase_if(sockets, [&](const RanksSocketName& socket) {
            auto tried = try_connect(socket.text(), socket.user);
            if (tried && *tried) found.push_back({socket.step, socket.user, std::move(**tried)});
            return tried.has_value();
        });
        return sockets.empty() || (!found.empty() && waited >= kPatienceWithOthers);
    });
    for (const auto& socket : sockets) crowded += (crowded.empty() ? "" : ", ") + socket.step;
    return found;
}

// Root asks users' daemons, and anybody can pretend to be one.
void make_printable(wire::StepStatus& status) {
    constexpr size_t kLongest = 1000;
    status.set_ending(printable(status.ending(), kLongest));
    for (auto& node : *status.mutable_nodes()) {
        node.set_host(printable(node.host(), kLongest));
        node.set_address(printable(node.address(), kLongest));
    }
    for (auto& meeting : *status.mutable_meetings()) {
        meeting.set_group(printable(meeting.group(), kLongest));
        meeting.set_missing(printable(meeting.missing(), kLongest));
    }
}

// The step that DP_SOCKET names.
Try<StepConnection> connect_own(const std::string& socket, const QueryingUser& me) {
    const auto name = parse_ranks_socket_name(socket);
    const std::string remedy = "; unset DP_SOCKET, or name a step";
    if (name && !me.may_try(*name, me.in_namespace))
        return fail("the step of DP_SOCKET belongs to " + user_name(name->user) + remedy);
    auto connection = connect_to(socket, name ? std::optional(name->user) : std::nullopt);
    if (!connection) return fail(connection.error().message + remedy);
    return StepConnection{name ? name->step : "of this task", name && me.root ? name->user : getuid(),
                          std::move(*connection)};
}

// The choice if there are several. Root asks about everybody's, and anybody can pretend to have a step.
std::string which_of(const std::vector<StepConnection>& found, const std::string& verb, bool root) {
    std::string steps, same = found.front().step;
    for (const auto& one : found) {
        steps += (steps.empty() ? "" : ", ") + one.step + (root ? " of " + user_name(one.user) : "");
        if (one.step != same) same.clear();
    }
    const std::string name_it = "dpctl " + verb + " " + found.front().step;
    if (root && !same.empty())
        return "several users say that step " + same + " is theirs on this node (" + steps +
               "); ask as its owner: runuser -u USER -- " + name_it;
    return std::string("there are several steps") + (root ? "" : " of yours") + " on this node (" + steps +
           "); name one: " + name_it;
}

}  // namespace

Result<wire::ToRank> ask_step(int socket, const wire::FromRank& question) {
    errno = 0;
    const bool sent = send_all(socket, to_frame(question));
    const auto body = sent ? receive_frame(socket, kMaxFrame) : std::nullopt;
    if (!body && (errno == EAGAIN || errno == EWOULDBLOCK))
        return no_answer(
            DP_ERROR_TIMEOUT,
            "the rendezvous daemon does not answer: is it stopped, or its broker's node silent?");
    if (!body) return no_answer(DP_ERROR_LOST, "its rendezvous daemon on this node has left");
    auto answer = parse_message<wire::ToRank>(*body);
    if (!answer) return no_answer(DP_ERROR_INVALID, kOtherVersion);
    if (answer->has_reply())
        return no_answer(answer->reply().status() == wire::LOST ? DP_ERROR_LOST : DP_ERROR_INVALID,
                         printable(answer->reply().error(), 600));
    return std::move(*answer);
}

// The requested daemon; else one line that says what to give.
Try<StepConnection> connect_step(const std::string& asked, const std::string& verb) {
    const QueryingUser me = querying_user(read_file("/proc/self/uid_map"), getuid());
    if (const char* own = std::getenv("DP_SOCKET"); own && *own == '@' && asked.empty())
        return connect_own(own + 1, me);
    auto sockets = daemon_sockets(read_file("/proc/net/unix"));
    std::erase_if(sockets, [&](const RanksSocketName& socket) {
        return (!asked.empty() && !is_step(socket.step, asked)) || !me.may_try(socket, !asked.empty());
    });
    std::string crowded;
    auto found = connect_all(std::move(sockets), crowded);
    std::sort(found.begin(), found.end(), [](const StepConnection& a, const StepConnection& b) {
        return strverscmp(a.step.c_str(), b.step.c_str()) < 0;  // 9.0 before 10.0
    });
    if (found.size() == 1) return std::move(found.front());
    if (!found.empty()) return fail(which_of(found, verb, me.root));
    if (!crowded.empty())
        return fail("step " + crowded +
                    " on this node takes no connection: if it is yours, its rendezvous daemon is stopped, or "
                    "crowded; try again");
    return fail("no step" + (asked.empty() ? "" : " " + printable(asked, 40)) + (me.root ? "" : " of yours") +
                " has a world on this node; run dpctl on one of the step's nodes, as its user (srun "
                "--overlap --jobid=JOB -w NODE dpctl " +
                verb + ") or root");
}

std::vector<RanksSocketName> daemon_sockets(std::string_view proc_net_unix) {
    std::vector<RanksSocketName> found;
    for (const std::string_view listening : listening_names(proc_net_unix)) {
        const auto name = parse_ranks_socket_name(listening);
        if (name && std::ranges::find(found, *name) == found.end()) found.push_back(*name);
    }
    return found;
}

bool QueryingUser::may_try(const RanksSocketName& socket, bool named) const {
    return root || socket.user == user || socket.user == outer || (in_namespace && named);
}

QueryingUser querying_user(std::string_view uid_map, uid_t user) {
    QueryingUser asker{user, user, false, user == 0};
    for (std::string_view line : split(uid_map, '\n')) {
        unsigned long inside = 0, outside = 0, count = 0;
        if (std::sscanf(std::string(line).c_str(), "%lu %lu %lu", &inside, &outside, &count) != 3) continue;
        constexpr unsigned long kAll = std::numeric_limits<uid_t>::max();
        if (inside == 0 && outside == 0 && count == kAll) return asker;
        if (user >= inside && user - inside < count)
            asker.outer = static_cast<uid_t>(outside + user - inside);
        asker.in_namespace = true;
        asker.root = false;
    }
    return asker;
}

std::string user_name(uid_t user) {
    const passwd* known = getpwuid(user);
    return known ? known->pw_name : std::to_string(user);
}

bool is_step_name(std::string_view text) {
    const auto is_number = [](std::string_view part) { return parse_number<uint32_t>(part).has_value(); };
    const auto parts = split(text, '.');
    return !parts.empty() && parts.size() <= 2 && is_number(parts.back()) &&
           (is_number(parts.front()) || parts.front() == "local");
}

bool is_step(std::string_view step, std::string_view asked) {
    return step == asked || (step.starts_with(asked) && step.substr(asked.size()).starts_with('.'));
}

Try<QueriedStep> query_step(const std::string& asked) {
    auto found = DP_TRY(connect_step(asked, "status"));
    wire::FromRank question;
    question.mutable_status();
    auto answer = ask_step(found.socket.get(), question);
    if (!answer) return fail(answer.error().message);
    if (!answer->has_status()) return fail(kOtherVersion);
    make_printable(*answer->mutable_status());
    return QueriedStep{found.step, std::move(*answer->mutable_status())};
}

int complain(const std::string& text) {
    std::fprintf(stderr, "dpctl: %s\n", text.c_str());
    return 1;
}

int print(const std::string& text) {
    return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0
               ? complain("cannot write the answer: " + errno_text(errno))
               : 0;
}

}  // namespace dp
