// SPDX-License-Identifier: Apache-2.0
//
// What a step's broker knows of its ranks, asked of the daemon of this node: for `dpctl status` and its like,
// and `dpctl top`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "dp.pb.h"

namespace dp {

struct QueriedStep {
    std::string step;  // "123.0"
    wire::StepStatus status;
};

// `asked`: "123.0" or "123"; "": the step of DP_SOCKET, else the only one of this user's here.
Try<QueriedStep> query_step(const std::string& asked);

// The same for who asks again and again; `verb` of dpctl, for messages.
struct StepConnection {
    std::string step;
    Fd socket;
};
Try<StepConnection> connect_step(const std::string& asked, const std::string& verb);

struct NoAnswer {
    std::string message;
    bool ended = false;  // the daemon or its broker has left, as they do at the end of a step
};
tl::expected<wire::ToRank, NoAnswer> ask_step(int socket, const wire::FromRank& question);

// A daemon's socket on this node.
struct DaemonSocket {
    std::string name;  // abstract, without '@'
    std::string step;  // "123.0"
    bool operator==(const DaemonSocket&) const = default;
};

// Those that are listened on, from the text of /proc/net/unix; each once.
std::vector<DaemonSocket> daemon_sockets(std::string_view proc_net_unix);

// Whether the step is the one that was asked for: "123.0" is 123.0 and 123.
bool is_step(std::string_view step, std::string_view asked);

// To standard error and standard output; → exit code.
int complain(const std::string& text);
int print(const std::string& text);

}  // namespace dp
