// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of the keepers of its node's ranks (common/keeper.hpp): one connection each. Who connects is
// believed only where the kernel's pid is that of the task which the launcher started for this rank. Of what it has set in its environment
// any process of the user may tell, once a connection: it is recorded, and nothing else.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "common/control.hpp"
#include "common/plan_file.hpp"
#include "loop/listener.hpp"
#include "loop/numbered.hpp"

namespace dp {

class KeeperServer {
 public:
    // What a proven keeper says.
    using OnEvent = std::function<void(const ControlEvent&)>;
    // The pid of the task that the launcher started for a local rank and that keeps it; 0 if unknown, or if no rank is kept.
    using KeeperOf = std::function<pid_t(uint32_t local_rank)>;

    KeeperServer(event_base* base, int socket, size_t ranks, RejectedPeers& rejected, KeeperOf keeper_of,
                 OnEvent on_event);

    // Both also for keepers that connect later. `survivors`: local ranks that go on without another life.
    void begin_life(NodePlan plan, const std::set<uint32_t>& survivors = {});
    void no_other_life();

 private:
    struct Client {
        uint64_t id = 0;
        pid_t pid = 0;
        std::optional<uint32_t> local_rank;  // once it has proven itself
        Fd socket;
        EventPtr event;
        KeeperServer* server = nullptr;
    };

    event_base* base_;
    size_t ranks_;
    RejectedPeers& rejected_;
    KeeperOf keeper_of_;
    OnEvent on_event_;
    std::set<uint32_t> present_;
    std::string last_word_;
    Numbered<Client> clients_;
    Listener listener_;

    void accept(Fd socket);
    void read(Client& client);
    bool handle(Client& client, const ControlEvent& event);
    void refuse(Client& client, const std::string& why);
    void drop(Client& client);
    void tell_all(const std::string& packet, const std::set<uint32_t>& except = {});
};

}  // namespace dp
