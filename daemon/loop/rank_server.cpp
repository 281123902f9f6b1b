// SPDX-License-Identifier: Apache-2.0
#include "loop/rank_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include "base/unix_socket.hpp"
#include "framing.hpp"

namespace dp {

constexpr const char* kSameVersion = "use libdp and slurm-dp of the same version";

RankServer::RankServer(event_base* base, int socket, RejectedPeers& rejected, OnMessage on_message,
                       OnClosed on_closed)
    : base_(base),
      rejected_(rejected),
      on_message_(std::move(on_message)),
      on_closed_(std::move(on_closed)),
      clients_(base),
      listener_(base, socket, rejected, [this](Fd fd) { accept(std::move(fd)); }) {}

void RankServer::accept(Fd socket) {
    const ucred peer = peer_of(socket.get()).value_or(ucred{0, static_cast<uid_t>(-1), 0});
    const bool ours = peer.uid == getuid();
    if (!ours && peer.uid != 0) {
        rejected_.mention("a local connection of user id " + std::to_string(peer.uid) + " (pid " +
                              std::to_string(peer.pid) + ")",
                          "this step belongs to user id " + std::to_string(getuid()));
        return;
    }
    Client& client = clients_.add();
    client.pid = peer.pid;
    client.ours = ours;
    client.connection.emplace(base_, socket.release(), kMaxFrame);
    client.connection->start([this, &client](std::string_view body) { on_frame(client, body); },
                             [this, &client](const std::string& why, bool over_limit) {
                                 if (over_limit) return refuse(client, why, kSameVersion);
                                 drop(client);
                             });
}

void RankServer::on_frame(Client& client, std::string_view body) {
    const auto message = parse_message<wire::FromRank>(body);
    if (!message || message->kind_case() == wire::FromRank::KIND_NOT_SET)
        refuse(client, "it sent something that is not a message of slurm-dp", kSameVersion);
    else if (!client.ours && !is_query(*message))
        refuse(client, "root may ask what the step does, and no more",
               "run it as user id " + std::to_string(getuid()));
    else
        on_message_(client.id, *message);
}

void RankServer::refuse(Client& client, const std::string& why, const std::string& remedy) {
    rejected_.mention("a local connection of pid " + std::to_string(client.pid), why);
    wire::ToRank told;
    told.mutable_reply()->set_status(wire::INVALID);
    told.mutable_reply()->set_error("the rendezvous daemon closed this connection: " + why + "; " + remedy);
    client.connection->send(to_frame(told));  // at once, as much as the socket takes
    drop(client);
}

void RankServer::drop(Client& client) {
    client.connection->stop();
    clients_.drop(client.id);
    on_closed_(client.id);
}

void RankServer::send(ConnectionId connection, const SharedMessage<wire::ToRank>& message) {
    if (Client* client = clients_.find(connection)) client->connection->send(message);
}

void RankServer::close(ConnectionId connection) {
    // Half-closes: what was sent arrives, and the peer's own close ends the connection.
    if (Client* client = clients_.find(connection)) client->connection->finish();
}

pid_t RankServer::pid_of(ConnectionId connection) {
    const Client* client = clients_.find(connection);
    return client ? client->pid : 0;
}

}  // namespace dp
