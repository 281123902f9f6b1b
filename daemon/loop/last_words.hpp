// SPDX-License-Identifier: Apache-2.0
//
// --dp-nccl-debug: what the NCCL of ranks that have died or hang has warned of last. `dpctl nccl-warning` reads that, in a process of
// its own, because the files may be on a file system that does not answer.
#pragma once

#include <event2/event.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/node.hpp"
#include "engine/time.hpp"
#include "loop/helper_program.hpp"

namespace dp {

// A daemon that is done stays no longer for it.
inline constexpr Time kLastWordsPatience{400};
// Of all files of one run, in bytes; the rest is not read.
inline constexpr size_t kMaxLastWords = 64 << 10;

class LastWords {
 public:
    struct File {
        NodeActions::NcclToRead of;
        std::string path;  // "": none
    };
    using OnWords = std::function<void(const NodeActions::NcclToRead& of, const std::string& words)>;

    // `command`: a program and its arguments that, given files, writes a line for each, and exits. `host` is this node's, for messages.
    LastWords(event_base* base, std::string host, std::vector<std::string> command, OnWords on_words)
        : base_(base), host_(std::move(host)), command_(std::move(command)), on_words_(std::move(on_words)) {}

    // Tells the words of each of them, later or at once; "" if there are none. There is one program at a time, and none
    // after one that the kernel does not let go: the file system has failed.
    void read(const std::vector<File>& files);
    // Takes note of programs that were ended and that the kernel has let go since.
    void reap();

 private:
    struct Run {
        std::vector<File> files;
        std::string said;
        std::optional<HelperRun> program;
    };
    event_base* base_;
    std::string host_;
    std::vector<std::string> command_;
    OnWords on_words_;
    std::vector<File> waiting_;  // for the present run to end
    std::unique_ptr<Run> run_;
    std::vector<pid_t> ended_;
    bool has_failed_ = false;

    void start();
    void fail(const std::string& why);
    void finish();
};

}  // namespace dp
