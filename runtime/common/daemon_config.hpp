// SPDX-License-Identifier: Apache-2.0
//
// What a launcher hands to dp-rendezvousd at its start: the facts of the step, as text in a memfd, and
// descriptors at fixed numbers. Nothing is in arguments or environment, where `ps` would show it.
#pragma once

#include <set>

#include "common/node_setup.hpp"
#include "common/options.hpp"

namespace dp {

// Bump it when plugin and daemon would misunderstand each other; other versions are refused.
inline constexpr uint32_t kDaemonConfigVersion = 10;

// Descriptors in the daemon. 0 is /dev/null, 1 and 2 are task 0's.
enum DaemonFd : int {
    kFdConfig = 3,
    kFdRanks = 4,
    kFdControl = 5,
    kFdPlanFile = 6,
    kFdReady = 7,
    kFdKeepers = 8,       // only where tasks tell (Settings::tasks_tell)
    kFdBroker = 9,        // broker only
    kFdMaster = 10,       // broker only: the held MASTER_PORT, or with --dp-store=torch the listening one
    kFdCoordinator = 11,  // broker only: the held port of a program's own coordinator
};

// A step as one of its nodes knows it.
struct NodeOfStep {
    uint32_t job_id = 0;  // 0: not a step of Slurm (dpctl launch)
    uint32_t step_id = 0;
    uint32_t generation = 0;
    uint32_t world_size = 0;
    uint32_t nodes = 0;
    uint32_t node_rank = 0;
    std::string host;             // this node's name
    std::vector<uint32_t> ranks;  // of this node's tasks, by local rank; of a spare node none (--dp-spares)
    std::string node_list;        // compressed, in node-rank order; "" where the launcher could not tell
    std::string secret;           // 64 hexadecimal digits

    bool operator==(const NodeOfStep&) const = default;
};

struct DaemonConfig : NodeOfStep {
    bool broker = false;
    uint32_t tasks = 0;  // of this node
    // The tiles of each of these ranks, by local rank: "12-15", "" if unknown. Empty: all unknown.
    std::vector<std::string> tiles;
    std::string tiles_conf;           // the site's file of the nodes' accelerators; "" where it has none
    Settings settings;                // the step's, complete
    bool gpus = false;                // with --dp-preflight: whether the step has some here
    std::string cuda_devices;         // likewise, those of NVIDIA; "all", or "": not known
    std::string temporary;            // with --dp-preflight: its TMPDIR; "" if it has none
    uint32_t exporter = 0;            // the user id of the site's `dpctl exporter`; 0: it has none, or root
    uint32_t dead_after_seconds = 0;  // how long a silent node is waited for; 0 is the default's
    std::string broker_host;          // relay: rank 0's node, for messages
    std::vector<std::string> broker_addresses;  // relay: numeric, in the order to try
    std::vector<uint16_t> candidates;  // relay: the ports to try there; broker: those for later generations
    std::string node_addr;             // relay: this node's address; "" for the one that the broker sees
    std::string master_addr;           // broker: this node's address for the others
    uint16_t master_port = 0;          // broker
    uint16_t coordinator_port = 0;     // broker

    bool operator==(const DaemonConfig&) const = default;
};

// All that is known of the tiles of the node's ranks.
std::set<uint32_t> known_tiles(const DaemonConfig& config);

// Whether a task's environment says that it has GPUs.
bool has_gpus(const GetVariable& get);
// NVIDIA's, as CUDA_VISIBLE_DEVICES has them; nullopt: it says nothing. "" means none.
std::optional<std::string> cuda_devices(const GetVariable& get);

std::string write_config(const DaemonConfig& config);
Try<DaemonConfig> read_config(std::string_view text);

// Starts the daemon in a session of its own, not as a child of the caller (double fork), with default signals
// and only the descriptors of DaemonFd, among them the setup's that belong to it; `stderr_fd` becomes its
// standard error. Runs in a freshly forked task or in dpctl; the caller's threads do not matter.
Try<void> spawn_daemon(const NodeSetup& node, const std::string& config_text, int stderr_fd);

// Closes the sockets of a broker that will not be on this node.
void drop_broker_ports(NodeSetup& node);

// Closes what only the daemon needs, in a launcher that has started it.
void drop_daemon_ends(NodeSetup& node);

}  // namespace dp
