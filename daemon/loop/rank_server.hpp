// SPDX-License-Identifier: Apache-2.0
//
// The daemon's server for the ranks of its node, and for dpctl: frames over the abstract unix socket, for
// processes of the same user. Root may only ask what the step does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/node.hpp"
#include "loop/connection.hpp"
#include "loop/listener.hpp"
#include "loop/numbered.hpp"

namespace dp {

class RankServer {
 public:
    using OnMessage = std::function<void(ConnectionId, const wire::FromRank&)>;
    using OnClosed = std::function<void(ConnectionId)>;

    RankServer(event_base* base, int socket, RejectedPeers& rejected, OnMessage on_message,
               OnClosed on_closed);

    void send(ConnectionId connection, const SharedMessage<wire::ToRank>& message);
    void close(ConnectionId connection);
    // The pid of the process that made it, from the kernel; 0 if it is gone or not in this pid namespace.
    pid_t pid_of(ConnectionId connection);

 private:
    struct Client {
        ConnectionId id = 0;
        pid_t pid = 0;
        bool ours = false;  // not root's
        std::optional<Connection> connection;
    };

    event_base* base_;
    RejectedPeers& rejected_;
    OnMessage on_message_;
    OnClosed on_closed_;
    Numbered<Client> clients_;
    Listener listener_;

    void accept(Fd socket);
    void on_frame(Client& client, std::string_view body);
    void refuse(Client& client, const std::string& why, const std::string& remedy);
    void drop(Client& client);
};

}  // namespace dp
