// SPDX-License-Identifier: Apache-2.0
#include "loop/rank_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include "common/unix_socket.hpp"
#include "framing.hpp"

namespace dp {
namespace {

constexpr const char* kSameVersion = "use libdp and slurm-dp of the same version";

}  // namespace

RankServer::RankServer(event_base* base, int socket, RejectedPeers& rejected, OnMessage on_message,
                       OnQuery on_query, OnClosed on_closed)
    : base_(base),
      rejected_(rejected),
      on_message_(std::move(on_message)),
      on_query_(std::move(on_query)),
      on_closed_(std::move(on_closed)),
      listener_(
          base, socket, [this](Fd fd) { accept(std::move(fd)); },
          [this](int error) { rejected_.no_room(error); }) {}

void RankServer::accept(Fd socket) {
    const ucred peer = peer_of(socket.get()).value_or(ucred{0, static_cast<uid_t>(-1), 0});
    const bool ours = peer.uid == getuid();
    if (!ours && peer.uid != 0) {
        rejected_.mention("a local connection of user id " + std::to_string(peer.uid) + " (pid " +
                              std::to_string(peer.pid) + ")",
                          "this step belongs to user id " + std::to_string(getuid()));
        return;
    }
    const ConnectionId id = next_++;
    auto connection = std::make_unique<Connection>(base_, socket.release(), kMaxFrame);
    Connection* raw = connection.get();
    connections_.emplace(id, std::move(connection));
    pids_.emplace(id, peer.pid);
    raw->start(
        [this, id, ours, pid = peer.pid](std::string_view body) {
            auto message = parse_message<wire::FromRank>(body);
            if (!message || message->kind_case() == wire::FromRank::KIND_NOT_SET)
                refuse(id, pid, "it sent no message of ours", kSameVersion);
            else if (auto query = query_of(*message))
                on_query_(id, *query);
            else if (!ours)
                refuse(id, pid, "it is root's, who may ask what the step does, and no more",
                       "run it as user id " + std::to_string(getuid()));
            else
                on_message_(id, *message);
            return !over_.contains(id);
        },
        [this, id, pid = peer.pid](const std::string& why) {
            if (why.find("limit") != std::string::npos) {
                refuse(id, pid, why, kSameVersion);
            } else {
                over_.insert(id);
                on_closed_(id);
            }
        });
}

// Refuses a program that speaks something else, another version of libdp, or root beyond queries: tells it
// why, and closes.
void RankServer::refuse(ConnectionId id, pid_t pid, const std::string& why, const std::string& remedy) {
    rejected_.mention("a local connection of pid " + std::to_string(pid), why);
    wire::ToRank told;
    told.mutable_reply()->set_status(wire::INVALID);
    told.mutable_reply()->set_error("the rendezvous daemon closed this connection: " + why + "; " + remedy);
    connections_.at(id)->send_last(to_frame(told));
    over_.insert(id);
    on_closed_(id);
}

void RankServer::send(ConnectionId connection, const wire::ToRank& message, const SharedBytes& following) {
    auto found = connections_.find(connection);
    if (found == connections_.end() || over_.contains(connection)) return;
    found->second->send(to_frame(message, following ? following->size() : 0), following);
}

void RankServer::close(ConnectionId connection) {
    // Half-closes: what was sent arrives, and the peer's own close ends the connection.
    auto found = connections_.find(connection);
    if (found != connections_.end() && !over_.contains(connection)) found->second->finish();
}

pid_t RankServer::pid_of(ConnectionId connection) const {
    auto found = pids_.find(connection);
    return found == pids_.end() ? 0 : found->second;
}

}  // namespace dp
