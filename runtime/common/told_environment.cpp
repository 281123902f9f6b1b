// SPDX-License-Identifier: Apache-2.0
#include "common/told_environment.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/unix_socket.hpp"
#include "common/control.hpp"
#include "common/socket_names.hpp"
#include "common/task_environment.hpp"

namespace dp {
namespace {

// What is in front of the variables, at most.
constexpr size_t kHead = 64;

bool may_be_told(const std::string& name) {
    return name != kInjected && std::ranges::find(kLauncherVariables, name) == kLauncherVariables.end();
}

}  // namespace

std::string told_environment(std::span<const EnvironmentChange> changes) {
    std::string text;
    for (const auto& [name, value] : changes)
        if (value && may_be_told(name) &&
            kHead + text.size() + name.size() + value->size() + 2 <= kMaxControl)
            text.append(1, '\0').append(name).append("=").append(*value);
    return text;
}

void tell_environment(const std::string& socket_name, uint32_t local_rank, uint32_t generation,
                      std::span<const EnvironmentChange> changes) {
    const auto address = AbstractAddress::of(keepers_socket_name(socket_name.substr(1)));
    const Fd daemon(address ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1);
    if (!daemon || !address->connect(daemon.get())) return;
    if (const auto peer = peer_of(daemon.get()); !peer || peer->uid != getuid()) return;
    send_control(daemon.get(), {ControlEvent::Kind::environment, local_rank, static_cast<int>(generation),
                                told_environment(changes)});
}

}  // namespace dp
