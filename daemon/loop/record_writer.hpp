// SPDX-License-Identifier: Apache-2.0
//
// --dp-record: brings a node's record to its file. `dp-rendezvousd write-record` writes it, in a process of its own, because a file
// system may hang, and the daemon must not.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/helper_program.hpp"

namespace dp {

// What waits for a file system that hangs, in bytes; when it is more, the recording ends.
inline constexpr size_t kMaxUnwritten = size_t{4} << 20;
// So much the daemon gathers, in bytes, and so long, because each write wakes the other process. It is lost if the daemon is killed.
inline constexpr size_t kMostGathered = size_t{32} << 10;
inline constexpr Time kGathers{100};
// How long a daemon that is done waits for the rest to be written.
inline constexpr Time kRecordPatience{1000};

class RecordWriter {
 public:
    // `command`: a program with its arguments; it brings standard input to the file, and prints one line if it cannot.
    // `on_failure`: once, with the reason; nothing is recorded from then on.
    RecordWriter(std::vector<std::string> command, std::function<void(const std::string& why)> on_failure,
                 Time patience = kRecordPatience);
    RecordWriter(const RecordWriter&) = delete;
    RecordWriter& operator=(const RecordWriter&) = delete;

    // Once. What was added before is written then.
    void start(event_base* base);
    bool has_started() const { return has_started_; }
    // Never waits.
    void add(std::string_view bytes);
    // The last thing: everything is written, or the time is up.
    void finish();
    // 0: it does not run.
    pid_t pid() const { return program_.pid(); }

 private:
    std::vector<std::string> command_;
    std::function<void(const std::string&)> on_failure_;
    Time patience_;
    std::string unwritten_;
    std::string said_;
    bool has_started_ = false, has_failed_ = false, is_finishing_ = false;
    HelperRun program_;
    std::optional<Timer> gather_;
    bool gathers_ = false;

    void flush();
    void fail_with(const std::string& why);
};

}  // namespace dp
