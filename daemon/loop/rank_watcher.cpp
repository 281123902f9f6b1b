// SPDX-License-Identifier: Apache-2.0
#include "loop/rank_watcher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "framing.hpp"
#include "loop/helper_program.hpp"

namespace dp {
namespace {

constexpr size_t kMaxWatched = 4096;  // bytes

}  // namespace

RankWatcher::RankWatcher(event_base* base, std::vector<std::string> command, OnNews on_news)
    : base_(base), command_(std::move(command)), on_news_(std::move(on_news)) {}

RankWatcher::~RankWatcher() {
    end_program();
}

// It waits for nothing but its own sleep and the memory of other processes, so that it ends at once.
void RankWatcher::end_program() {
    event_.reset();
    output_.reset();
    said_.clear();
    if (program_ == 0) return;
    kill(program_, SIGKILL);
    waitpid(std::exchange(program_, 0), nullptr, 0);
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
    std::array<int, 2> ends{};
    has_failed_ = pipe2(ends.data(), O_CLOEXEC) != 0;
    if (has_failed_) return fail("no pipe for the program that watches them");
    output_.reset(ends[0]);
    const Fd input(ends[1]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    program_ = spawn_helper(command, input.get());
    if (program_ == 0) {
        has_failed_ = true;
        return fail(command.front() +
                    " cannot be started; in a container, slurm-dp must be installed there, too");
    }
    event_.reset(event_new(base_, output_.get(), EV_READ | EV_PERSIST, on_output, this));
    event_add(event_.get(), nullptr);
    return {};
}

void RankWatcher::on_output(int, short, void* watcher) {
    RankWatcher& self = *static_cast<RankWatcher*>(watcher);
    std::array<char, 65536> some{};
    ssize_t size = 0;
    while ((size = ::read(self.output_.get(), some.data(), some.size())) > 0)
        self.said_.append(some.data(), static_cast<size_t>(size));
    const bool has_ended = size == 0 || (errno != EAGAIN && errno != EINTR);
    while (self.said_.size() >= kFrameHeader) {
        const auto length =
            frame_length(reinterpret_cast<const unsigned char*>(self.said_.data()), kMaxWatched);
        if (!length) return self.stop();
        if (self.said_.size() < kFrameHeader + *length) break;
        const auto news =
            parse_message<wire::Watched>(std::string_view(self.said_).substr(kFrameHeader, *length));
        self.said_.erase(0, kFrameHeader + *length);
        if (!news) return self.stop();
        self.tell(*news);
    }
    if (has_ended) self.stop();  // as have the tasks
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
