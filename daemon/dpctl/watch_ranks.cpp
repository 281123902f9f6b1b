// SPDX-License-Identifier: Apache-2.0
//
// `dpctl watch-ranks`, which the daemon runs with --dp-hang-timeout: whether the node's ranks make progress, for as long as they live.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "dp.pb.h"
#include "dpctl/commands.hpp"
#include "engine/hang_watch.hpp"
#include "framing.hpp"
#include "record/hang.hpp"
#include "stacks/rank_watch.hpp"

namespace dp {
namespace {

// printable() adds three dots.
std::string shortened(std::string_view text, size_t most) {
    return printable(text, text.size() > most ? most - 3 : most);
}

// Of a path the end says most.
std::string without_beginning(std::string_view text, size_t most) {
    return text.size() <= most ? printable(text, most)
                               : "..." + printable(text.substr(text.size() - most + 3), most);
}

wire::Watched message_of(pid_t task, const stacks::RankWatch::News& news) {
    wire::Watched watched;
    watched.set_pid(task);
    if (!news.still) return watched;
    auto& still = *watched.mutable_still();
    still.set_for_ms(news.stood.count());
    still.set_waits_for_others(news.still->waits_for_others);
    still.set_where(printable(news.still->where, kMaxWhere));
    still.set_place(news.still->place);
    for (const stacks::Frame& frame : news.calls.frames) {
        auto& calls = *watched.mutable_calls();
        if (calls.frames_size() == static_cast<int>(kMostFrames)) {
            calls.set_incomplete(plural(news.calls.frames.size() - kMostFrames, "outer call") + " not shown");
            return watched;
        }
        auto& told = *calls.add_frames();
        told.set_function(shortened(frame.function, kMaxCallText));
        told.set_file(without_beginning(frame.file, kMaxCallText));
        told.set_line(frame.line);
    }
    watched.mutable_calls()->set_incomplete(printable(news.calls.incomplete, kMaxWhere));
    return watched;
}

// Whether there is still somebody who reads it. A message is shorter than what a pipe takes at once.
bool tell(const wire::Watched& watched) {
    const std::string frame = to_frame(watched);
    return write(STDOUT_FILENO, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
}

// When nobody has looked for so long, the step was suspended, or the machine was.
constexpr auto kPause = std::chrono::seconds(3);
// How often one that cannot be read is tried again, and after how long that is told: before it executes its program, the task is
// Slurm's, and nobody may read it.
constexpr auto kRetry = std::chrono::seconds(1), kUnreadable = std::chrono::seconds(30);

struct Watch {
    stacks::RankWatch rank;
    std::optional<stacks::SteadyTime> unreadable_since, retry_at;
    bool is_told = false;  // that it cannot be read
};

// False once nobody listens.
bool look(pid_t task, Watch& watch) {
    const auto now = std::chrono::steady_clock::now();
    if (watch.retry_at && now < *watch.retry_at) return true;
    const auto news = watch.rank.look(now);
    if (news) {
        watch.unreadable_since = watch.retry_at = std::nullopt;
        return !*news || tell(message_of(task, **news));
    }
    watch.retry_at = now + kRetry;
    if (!watch.unreadable_since) watch.unreadable_since = now;
    if (watch.is_told || now - *watch.unreadable_since < kUnreadable || watch.rank.has_ended()) return true;
    watch.is_told = true;
    wire::Watched unreadable;
    unreadable.set_pid(task);
    unreadable.set_unwatchable(printable(news.error().message));
    return tell(unreadable);
}

}  // namespace

int watch_ranks(const WatchRanksOptions& options) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    const std::chrono::milliseconds timeout = std::chrono::seconds(options.timeout_seconds);
    std::map<pid_t, Watch> ranks;
    for (const pid_t task : options.pids) ranks.try_emplace(task, Watch{{task, timeout}, {}, {}});
    auto last = std::chrono::steady_clock::now();
    while (!ranks.empty()) {
        std::erase_if(ranks,
                      [](const auto& one) { return one.second.retry_at && one.second.rank.has_ended(); });
        const bool was_away = std::chrono::steady_clock::now() - last > kPause;
        for (auto& [task, watch] : ranks) {
            if (was_away) watch.rank.pause();
            if (!look(task, watch)) return 1;
        }
        last = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(stacks::look_interval(timeout));
    }
    return 0;
}

}  // namespace dp
