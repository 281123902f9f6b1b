// SPDX-License-Identifier: Apache-2.0
//
// The daemon's server for the ranks of its node, and for dpctl: frames over the abstract unix socket, for
// processes of the same user. Root may only ask what the step does.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/node.hpp"
#include "loop/connection.hpp"
#include "loop/deferred.hpp"
#include "loop/listener.hpp"
#include "loop/log.hpp"

namespace dp {

class RankServer {
 public:
    using OnMessage = std::function<void(ConnectionId, const wire::FromRank&)>;
    using OnQuery = std::function<void(ConnectionId, Query)>;
    using OnClosed = std::function<void(ConnectionId)>;

    RankServer(event_base* base, int socket, RejectedPeers& rejected, OnMessage on_message, OnQuery on_query,
               OnClosed on_closed);

    // `following`: the rest of the message, if many ranks get the same (to_frame).
    void send(ConnectionId connection, const wire::ToRank& message, const SharedBytes& following = nullptr);
    void close(ConnectionId connection);
    // The pid of the process that made it, from the kernel; 0 if it is gone or not in this pid namespace.
    pid_t pid_of(ConnectionId connection) const;

 private:
    event_base* base_;
    RejectedPeers& rejected_;
    OnMessage on_message_;
    OnQuery on_query_;
    OnClosed on_closed_;
    std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
    std::map<ConnectionId, pid_t> pids_;
    FreedLater<ConnectionId> over_{base_, [this](ConnectionId id) {
                                       connections_.erase(id);
                                       pids_.erase(id);
                                   }};
    ConnectionId next_ = 1;
    Listener listener_;

    void accept(Fd socket);
    void refuse(ConnectionId id, pid_t pid, const std::string& why, const std::string& remedy);
};

}  // namespace dp
