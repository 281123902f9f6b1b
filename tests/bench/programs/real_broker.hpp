// SPDX-License-Identifier: Apache-2.0
//
// The real dp-rendezvousd of the first node of a step, as the plugin starts it. Every failure ends this
// program with a line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/node_setup.hpp"
#include "common/options.hpp"
#include "libdp/client.hpp"

namespace dp::bench {

// The longest that anything may take.
inline constexpr std::chrono::seconds kPatience{60};

struct StepShape {
    uint32_t nodes = 0;
    uint32_t ranks_per_node = 0;
    FailureAction on_failure = FailureAction::abort;  // --dp-on-failure
    bool torch_store = false;                         // --dp-store=torch
    uint32_t spares = 0;                              // --dp-spares: the last of the nodes
    bool broker_dies = false;                         // the last node, a spare, follows it
    uint32_t hang_timeout_seconds = 0;                // --dp-hang-timeout
    uint32_t world() const { return (nodes - spares) * ranks_per_node; }
};

class RealBroker {
 public:
    RealBroker(const std::string& daemon, const StepShape& shape);

    pid_t pid() const { return pid_; }
    uint16_t port() const { return port_; }
    uint16_t master_port() const { return master_port_; }
    const std::string& secret() const { return secret_; }
    const std::string& socket() const { return setup_.socket_name; }

    // All nodes have connected.
    void wait_for_plan();
    // Ranks of its own node, as real clients. After wait_for_plan.
    std::vector<std::unique_ptr<Client>> open_ranks();
    // Or each in a process of its own, which does not return from this.
    std::vector<pid_t> start_ranks(const std::function<void(uint32_t rank)>& be_rank);
    // With restart: its node's ranks under keepers, in processes of their own that do nothing. After all nodes have
    // connected.
    void start_keepers();
    void kill_all();
    // Its node's ranks have ended. → whether the daemon then left by itself.
    bool leave();

 private:
    StepShape shape_;
    NodeSetup setup_;
    std::string secret_;
    uint16_t port_ = 0;
    uint16_t master_port_ = 0;
    pid_t pid_ = 0;
    std::vector<pid_t> keepers_;
};

}  // namespace dp::bench
