// SPDX-License-Identifier: Apache-2.0
//
// `dpctl watch-ranks`, which the daemon runs with --dp-hang-timeout: whether the node's ranks make progress, for as long as they live.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "dp.pb.h"
#include "dpctl/commands.hpp"
#include "framing.hpp"
#include "stacks/rank_watch.hpp"

namespace dp {
namespace {

wire::Watched message_of(pid_t task, const stacks::RankWatch::News& news) {
    wire::Watched watched;
    watched.set_pid(task);
    if (!news.still) return watched;
    auto& still = *watched.mutable_still();
    still.set_for_ms(news.stood.count());
    still.set_waits_for_others(news.still->waits_for_others);
    still.set_where(news.still->where);
    still.set_place(news.still->place);
    return watched;
}

// Whether there is still somebody who reads it. A message is shorter than what a pipe takes at once.
bool tell(const wire::Watched& watched) {
    const std::string frame = to_frame(watched);
    return write(STDOUT_FILENO, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
}

}  // namespace

int watch_ranks(const WatchRanksOptions& options) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    const std::chrono::milliseconds timeout = std::chrono::seconds(options.timeout_seconds);
    std::map<pid_t, stacks::RankWatch> ranks;
    for (const pid_t task : options.pids) ranks.try_emplace(task, task, timeout);
    while (!ranks.empty()) {
        const auto now = std::chrono::steady_clock::now();
        for (auto rank = ranks.begin(); rank != ranks.end();) {
            auto& [task, watch] = *rank;
            const auto news = watch.look(now);
            if (news && *news && !tell(message_of(task, **news))) return 1;
            if (!news && kill(task, 0) == 0) {
                wire::Watched never;
                never.set_pid(task);
                never.set_unwatchable(news.error().message);
                if (!tell(never)) return 1;
            }
            rank = news ? std::next(rank) : ranks.erase(rank);
        }
        std::this_thread::sleep_until(now + stacks::look_interval(timeout));
    }
    return 0;
}

}  // namespace dp
