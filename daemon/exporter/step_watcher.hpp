// SPDX-License-Identifier: Apache-2.0
//
// The exporter's connections to the daemons of its node's steps (loop/metrics_server.hpp). Anybody can listen on a step's name: whose
// step it is the kernel says, and of one user only so many are watched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/read_file.hpp"
#include "exporter/steps.hpp"
#include "loop/connection.hpp"
#include "loop/numbered.hpp"
#include "loop/timer.hpp"

namespace dp {

// How often new steps are looked for; a shorter one is not seen.
inline constexpr Time kFindEvery{1000};
// How long a scrape waits for the daemons.
inline constexpr Time kAnswerPatience{1000};
// How long a name is left alone whose listener has closed the connection, as long as it is there.
inline constexpr Time kRefusalHolds{30'000};
inline constexpr size_t kMaxWatched = 1024, kMaxWatchedOfUser = 64;
inline constexpr size_t kMaxNodeMetrics = size_t{16} << 10;  // bytes

class StepWatcher {
 public:
    // `read_sockets`: the node's unix sockets, as /proc/net/unix has them.
    using ReadSockets = std::function<std::string()>;
    StepWatcher(
        event_base* base, StepsOfNode& steps,
        ReadSockets read_sockets = [] { return read_file("/proc/net/unix"); });

    // Asks all daemons, and calls this once they have answered, or after kAnswerPatience.
    void ask(std::function<void()> on_answered);
    // Steps that are here and cannot be watched.
    size_t unreachable() const { return unreachable_.size(); }

 private:
    struct Watched {
        uint64_t id = 0;
        std::string name, step;
        uid_t user = 0;
        bool has_spoken = false;
        int owed = 1;  // frames that were asked for; the first one comes by itself
        std::unique_ptr<Connection> connection;
    };
    event_base* base_;
    StepsOfNode& steps_;
    ReadSockets read_sockets_;
    Numbered<Watched> watched_;
    std::set<std::string> unreachable_;    // names
    std::map<std::string, Time> refused_;  // names, when
    std::set<uid_t> told_of_refusal_;
    std::map<uid_t, std::string> user_names_;
    std::map<uid_t, size_t> watched_of_;
    std::set<uint64_t> awaited_;
    std::vector<std::function<void()>> askers_;
    Timer find_timer_, answer_timer_;

    void find();
    bool watch(const std::string& name, const std::string& step);
    void on_frame(uint64_t id, std::string_view body);
    void on_closed(uint64_t id, bool by_peer);
    const std::string& name_of(uid_t user);
    void answered(uint64_t id);
    void tell_askers();
};

}  // namespace dp
