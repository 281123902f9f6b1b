// SPDX-License-Identifier: Apache-2.0
#include "loop/rank_watcher.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "framing.hpp"

namespace dp {
namespace {

// In bytes: the calls of a rank (record/hang.hpp), and where it is.
constexpr size_t kMaxWatched = size_t{32} << 10;

}  // namespace

RankWatcher::RankWatcher(event_base* base, std::vector<std::string> command, OnNews on_news)
    : base_(base), command_(std::move(command)), on_news_(std::move(on_news)) {}

RankWatcher::~RankWatcher() {
    end_program();
}

// It waits for nothing but its own sleep and the memory of other processes, so that it ends at once.
void RankWatcher::end_program() {
    const pid_t program = program_ ? program_->end() : 0;
    if (program != 0) waitpid(program, nullptr, 0);
    program_.reset();
}

// What it has told of ranks no longer holds.
void RankWatcher::stop() {
    end_program();
    for (const uint32_t local_rank : std::exchange(still_, {})) on_news_(local_rank, wire::Watched());
}

Try<void> RankWatcher::watch(const std::vector<pid_t>& tasks) {
    const bool others = std::ranges::any_of(
        tasks, [&](pid_t task) { return task != 0 && std::ranges::find(tasks_, task) == tasks_.end(); });
    if (has_failed_ || !others) return {};
    stop();
    tasks_ = tasks;
    auto command = command_;
    for (const pid_t task : tasks)
        if (task != 0) command.push_back(std::to_string(task));
    // Before it ends, its ranks have.
    program_.emplace(
        [this](std::string& said) {
            return take_frames<wire::Watched>(said, kMaxWatched,
                                              [this](const wire::Watched& news) { tell(news); });
        },
        [this](HelperRun::End) { stop(); });
    const auto started = program_->start(base_, command);
    has_failed_ = !started;
    return started;
}

void RankWatcher::tell(const wire::Watched& news) {
    const auto task = std::ranges::find(tasks_, news.pid());
    if (news.pid() == 0 || task == tasks_.end()) return;
    const auto local_rank = static_cast<uint32_t>(task - tasks_.begin());
    if (news.has_still())
        still_.insert(local_rank);
    else
        still_.erase(local_rank);
    on_news_(local_rank, news);
}

}  // namespace dp
