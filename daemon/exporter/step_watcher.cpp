// SPDX-License-Identifier: Apache-2.0
#include "exporter/step_watcher.hpp"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/unix_socket.hpp"
#include "common/read_file.hpp"
#include "common/socket_names.hpp"
#include "framing.hpp"
#include "loop/log.hpp"

namespace dp {
namespace {

std::string user_name(uid_t user) {
    const passwd* known = getpwuid(user);
    return known ? known->pw_name : std::to_string(user);
}

}  // namespace

StepWatcher::StepWatcher(event_base* base, StepsOfNode& steps)
    : base_(base),
      steps_(steps),
      watched_(base),
      find_timer_(base, [this] { find(); }),
      answer_timer_(base, [this] { tell_askers(); }) {
    find();
}

void StepWatcher::find() {
    find_timer_.after(kFindEvery);
    const std::string listening = read_file("/proc/net/unix");
    std::map<std::string, std::string> found;  // steps by name
    for (const std::string_view name : listening_names(listening))
        if (const auto step = step_of_metrics_socket(name)) found.emplace(name, *step);
    std::erase_if(unreachable_, [&](const std::string& name) { return !found.contains(name); });
    std::erase_if(refused_, [&](const auto& one) {
        return !found.contains(one.first) || steady_now() - one.second > kRefusalHolds;
    });
    for (const auto& [id, one] : watched_) found.erase(one.name);
    for (const auto& [name, step] : found)
        if (!refused_.contains(name)) watch(name, step);
}

void StepWatcher::watch(const std::string& name, const std::string& step) {
    unreachable_.insert(name);
    const auto address = AbstractAddress::of(name);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!address || !socket || !address->connect(socket.get())) return;
    const auto peer = peer_of(socket.get());
    if (!peer) return;
    const auto of_user =
        std::ranges::count_if(watched_, [&](const auto& one) { return one.second.user == peer->uid; });
    if (watched_.size() >= kMaxWatched || of_user >= static_cast<ptrdiff_t>(kMaxWatchedOfUser)) return;
    Watched& one = watched_.add();
    one.name = name;
    one.step = step;
    one.user = peer->uid;
    steps_.add(one.id, step, user_name(peer->uid));
    one.connection = std::make_unique<Connection>(base_, socket.release(), kMaxNodeMetrics);
    one.connection->start([this, id = one.id](std::string_view body) { on_frame(id, body); },
                          [this, id = one.id](const std::string&, bool) { on_closed(id); });
    one.connection->send("GET /watch HTTP/1.1\r\n\r\n");
}

void StepWatcher::ask(std::function<void()> on_answered) {
    askers_.push_back(std::move(on_answered));
    if (askers_.size() > 1) return;
    answer_timer_.after(kAnswerPatience);
    for (auto& [id, one] : watched_) {
        awaited_.insert(id);
        // The first answer comes by itself.
        if (one.has_spoken) one.connection->send("\n");
    }
    if (awaited_.empty()) answer_timer_.after(Time(0));
}

void StepWatcher::on_frame(uint64_t id, std::string_view body) {
    Watched* const one = watched_.find(id);
    if (!one) return;
    const auto metrics = parse_message<wire::NodeMetrics>(body);
    if (!metrics) {
        one->connection->stop();
        return on_closed(id);
    }
    one->has_spoken = true;
    unreachable_.erase(one->name);
    steps_.note(id, *metrics);
    answered(id);
}

void StepWatcher::on_closed(uint64_t id) {
    const Watched* const one = watched_.find(id);
    if (!one) return;
    if (!one->has_spoken) {
        refused_[one->name] = steady_now();
        if (!std::exchange(has_told_of_refusal_, true))
            log_line("step " + one->step + " of " + user_name(one->user) + " lets user " +
                     user_name(geteuid()) + " read nothing; run the exporter as root, or set exporter=" +
                     user_name(geteuid()) + " in plugstack.conf");
    }
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
