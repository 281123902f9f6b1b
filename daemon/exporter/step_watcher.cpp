// SPDX-License-Identifier: Apache-2.0
#include "exporter/step_watcher.hpp"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/awake.hpp"
#include "base/unix_socket.hpp"
#include "common/socket_names.hpp"
#include "framing.hpp"
#include "loop/log.hpp"

namespace dp {
StepWatcher::StepWatcher(event_base* base, StepsOfNode& steps, ReadSockets read_sockets)
    : base_(base),
      steps_(steps),
      read_sockets_(std::move(read_sockets)),
      watched_(base),
      find_timer_(base, [this] { find(); }),
      answer_timer_(base, [this] { tell_askers(); }) {
    find();
}

void StepWatcher::find() {
    find_timer_.after(kFindEvery);
    const std::string listening = read_sockets_();
    std::map<std::string, std::string> found;  // steps by name
    for (const std::string_view name : listening_names(listening))
        if (const auto step = step_of_metrics_socket(name)) found.emplace(name, *step);
    std::erase_if(unreachable_, [&](const std::string& name) { return !found.contains(name); });
    std::erase_if(refused_, [&](const auto& one) {
        return !found.contains(one.first) || steady_now() - one.second > kRefusalHolds;
    });
    for (const auto& [id, one] : watched_) found.erase(one.name);
    for (const auto& [name, step] : found) {
        if (refused_.contains(name) || watch(name, step)) continue;
        unreachable_.insert(name);
        refused_[name] = steady_now();
    }
}

// Asked once: a directory service may be slow.
const std::string& StepWatcher::name_of(uid_t user) {
    const auto [name, is_new] = user_names_.try_emplace(user);
    const passwd* const known = is_new ? getpwuid(user) : nullptr;
    if (is_new) name->second = known ? known->pw_name : std::to_string(user);
    return name->second;
}

// False: it cannot be, or there are enough.
bool StepWatcher::watch(const std::string& name, const std::string& step) {
    const auto address = AbstractAddress::of(name);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!address || !socket || !address->connect(socket.get())) return false;
    const auto peer = peer_of(socket.get());
    if (!peer || watched_.size() >= kMaxWatched || watched_of_[peer->uid] >= kMaxWatchedOfUser) return false;
    ++watched_of_[peer->uid];
    Watched& one = watched_.add();
    one.name = name;
    one.step = step;
    one.user = peer->uid;
    unreachable_.insert(name);  // until it has spoken
    steps_.add(one.id, step, name_of(peer->uid));
    one.connection = std::make_unique<Connection>(base_, socket.release(), kMaxNodeMetrics);
    one.connection->start([this, id = one.id](std::string_view body) { on_frame(id, body); },
                          [this, id = one.id](const std::string&, bool) { on_closed(id, true); });
    one.connection->send("GET /watch HTTP/1.1\r\n\r\n");
    return true;
}

void StepWatcher::ask(std::function<void()> on_answered) {
    askers_.push_back(std::move(on_answered));
    if (askers_.size() > 1) return;
    answer_timer_.after(kAnswerPatience);
    for (auto& [id, one] : watched_) {
        awaited_.insert(id);
        if (one.owed > 0) continue;
        // What has just ended has its last words under way, which a failed write must not lose.
        if (::send(one.connection->fd(), "\n", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) ++one.owed;
    }
    if (awaited_.empty()) answer_timer_.after(Time(0));
}

void StepWatcher::on_frame(uint64_t id, std::string_view body) {
    Watched* const one = watched_.find(id);
    if (!one) return;
    const auto metrics = parse_message<wire::NodeMetrics>(body);
    // Nobody is listened to who says what he was not asked.
    if (!metrics || (one->owed == 0 && !metrics->is_last())) {
        one->connection->stop();
        return on_closed(id, false);
    }
    one->owed = std::max(one->owed - 1, 0);
    one->has_spoken = true;
    unreachable_.erase(one->name);
    steps_.note(id, *metrics);
    if (metrics->is_last()) {
        one->connection->stop();
        return on_closed(id, false);
    }
    answered(id);
}

void StepWatcher::on_closed(uint64_t id, bool by_peer) {
    const Watched* const one = watched_.find(id);
    if (!one) return;
    const uid_t self = geteuid();
    if (!one->has_spoken && by_peer && self != 0 && told_of_refusal_.insert(one->user).second)
        log_line("step " + one->step + " of " + name_of(one->user) + " lets user " + name_of(self) +
                 " read nothing; run the exporter as root, or set exporter=" + name_of(self) +
                 " in plugstack.conf");
    refused_[one->name] = steady_now();
    if (--watched_of_[one->user] == 0) watched_of_.erase(one->user);
    steps_.ended(id, steady_now());
    watched_.drop(id);
    answered(id);
}

void StepWatcher::answered(uint64_t id) {
    if (awaited_.erase(id) > 0 && awaited_.empty()) answer_timer_.after(Time(0));
}

void StepWatcher::tell_askers() {
    awaited_.clear();
    answer_timer_.cancel();
    for (const auto& asker : std::exchange(askers_, {})) asker();
}

}  // namespace dp
