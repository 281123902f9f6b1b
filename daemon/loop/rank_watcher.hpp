// SPDX-License-Identifier: Apache-2.0
//
// --dp-hang-timeout: whether this node's ranks make progress. `dpctl watch-ranks` looks at them, in a process of its own, because what
// it reads is untrusted and takes a library to understand. It lives as long as they do.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "loop/helper_program.hpp"

namespace dp {

class RankWatcher {
 public:
    // The task's index in `tasks` of watch(), and what is new of it.
    using OnNews = std::function<void(uint32_t local_rank, const wire::Watched& news)>;

    // `command`: a program and its arguments that, given pids, writes a wire::Watched in a frame for each news.
    RankWatcher(event_base* base, std::vector<std::string> command, OnNews on_news);
    ~RankWatcher();  // ends the program
    RankWatcher(const RankWatcher&) = delete;
    RankWatcher& operator=(const RankWatcher&) = delete;

    // The local ranks' tasks now; 0: it has not begun, or has ended. To be called from time to time: whenever others
    // have begun, all are watched from then on. Fails, once, if the program cannot be started.
    Try<void> watch(const std::vector<pid_t>& tasks);

 private:
    event_base* base_;
    std::vector<std::string> command_;
    OnNews on_news_;
    std::vector<pid_t> tasks_;  // that are watched
    std::set<uint32_t> still_;  // of them, as was told
    std::optional<HelperRun> program_;
    bool has_failed_ = false;

    void end_program();
    void stop();
    void tell(const wire::Watched& news);
};

}  // namespace dp
