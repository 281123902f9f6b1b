// SPDX-License-Identifier: Apache-2.0
//
// What a node needs before its ranks start: bound sockets, the file in which the plan will appear, the opened
// daemon. Made by the plugin in user_init and by `dpctl launch`; never waits. All is close-on-exec.
#pragma once

#include <sys/types.h>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "common/ports.hpp"

namespace dp {

// A bound TCP port: listening for the broker, or held for whoever binds it.
struct BoundPort {
    Fd socket;
    uint16_t port = 0;
};

struct NodeSetup {
    Fd daemon_binary;
    Fd ranks_listener;        // where the node's daemon meets its ranks (socket_names.hpp)
    std::string socket_name;  // with '@' in front, as in DP_SOCKET
    Fd keepers_listener;  // where tasks speak to it: keepers (keeper.hpp), and what has an environment to tell
    // The plan: its text in `plan_file` (a memfd) once `ready_read` polls readable; a hang-up without that
    // means the daemon died. The byte is never read, so any number of tasks can wait for it.
    Fd plan_file;
    Fd ready_read;
    Fd ready_write;
    // slurmstepd's packets to the daemon (control.hpp). A hang-up means that slurmstepd is gone.
    Fd control_launcher;
    Fd control_daemon;
    // Only on rank 0's node.
    BoundPort broker;
    BoundPort master;
    BoundPort coordinator;  // for a coordinator of the program's own (JAX's, torchrun's)
};

// The ports that a node with the broker binds.
struct PortWishes {
    std::vector<uint16_t> candidates;  // empty: no broker here
    PortRange ephemeral;
    uint16_t master = 0;        // --dp-port; 0: the first free candidate
    bool serve_master = false;  // --dp-store=torch: listens on MASTER_PORT instead of holding it
};

// `daemon_path` is absolute; `user` is the step's; `tasks_tell`: as in Settings.
Try<NodeSetup> prepare_node(const std::string& daemon_path, const std::string& step_name, uid_t user,
                            const PortWishes& ports, bool tasks_tell);

// Listens on the first free candidate on every address, IPv4 and IPv6. `purpose`: in the failure.
Try<BoundPort> listen_on_first_free(const std::vector<uint16_t>& candidates, const char* purpose);

// Holds the first free candidate for a server that sets SO_REUSEADDR (practically all do): binds it
// exclusively, so nobody else has it, then sets SO_REUSEADDR and never listens: another exclusive bind fails.
Try<BoundPort> hold_first_free(const std::vector<uint16_t>& candidates, const char* purpose);

// 32 random bytes as 64 hexadecimal digits.
Try<std::string> make_secret();

}  // namespace dp
