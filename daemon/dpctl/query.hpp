// SPDX-License-Identifier: Apache-2.0
//
// Asks this node's daemon what the step's broker knows about its ranks: for `dpctl status` and its like, and
// `dpctl top`. The step's user and root may ask.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "common/socket_names.hpp"
#include "dp.pb.h"
#include "dp/dp.hpp"

namespace dp {

struct QueriedStep {
    std::string step;  // "123.0"
    wire::StepStatus status;
};

// `asked`: "123.0" or "123"; "": the step of DP_SOCKET, else the only one here that this user may ask about.
Try<QueriedStep> query_step(const std::string& asked);

// The same for repeated queries; `verb`: dpctl's subcommand, for messages.
struct StepConnection {
    std::string step;
    uid_t user = 0;  // whose it is
    Fd socket;
};
Try<StepConnection> connect_step(const std::string& asked, const std::string& verb);

inline constexpr const char* kOtherVersion = "the answer is not from a rendezvous daemon of this version";
inline tl::unexpected<Error> no_answer(dp_status status, std::string why) {
    return tl::unexpected(Error{status, std::move(why)});
}
// DP_ERROR_LOST: the daemon or its broker has left, as they do at the end of a step.
Result<wire::ToRank> ask_step(int socket, const wire::FromRank& question);

// The listening daemons' sockets on this node, from the text of /proc/net/unix; each once.
std::vector<RanksSocketName> daemon_sockets(std::string_view proc_net_unix);

// Whose steps a process may ask about, by its user id and the text of /proc/self/uid_map. A socket's name has
// the user id that its creator saw, who may be in another user namespace.
struct QueryingUser {
    uid_t user = 0;
    uid_t outer = 0;            // the same user, one namespace further out
    bool in_namespace = false;  // so that other numbers may be his, too
    bool root = false;          // of the machine

    // Whether to connect: it tells a stranger that somebody asks. `named`: the user gave the step's number.
    bool may_try(const RanksSocketName& socket, bool named) const;
};
QueryingUser querying_user(std::string_view uid_map, uid_t user);

// The possible names of a step: "123", "123.0"; "local.4711" for dpctl launch.
bool is_step_name(std::string_view text);

// Whether the step is the one that was asked for: "123.0" is 123.0 and 123.
bool is_step(std::string_view step, std::string_view asked);

// The user's name, else the number.
std::string user_name(uid_t user);

// Prints to standard error or standard output; returns the exit code.
int complain(const std::string& text);
int print(const std::string& text);

}  // namespace dp
