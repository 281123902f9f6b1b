// SPDX-License-Identifier: Apache-2.0
//
// Lines for the user: standard error of the step's first task here. One write per line; never waits long.
#pragma once

#include <set>
#include <string>
#include <utility>

namespace dp {

void log_line(const std::string& text);

// Lines that a stranger could provoke: prints the first few, then one for each reason, then only counts.
class RejectedPeers {
 public:
    explicit RejectedPeers(std::string host = "") : host_(std::move(host)) {}
    // "closed WHAT: WHY"
    void mention(const std::string& what, const std::string& why);
    // Says once that connections wait for a descriptor.
    void no_room(int error);
    // At the end: one line with the number of lines that were not printed.
    void summary();

 private:
    static constexpr unsigned kPrinted = 3;
    static constexpr size_t kReasons = 8;
    std::string host_;
    unsigned seen_ = 0;
    unsigned unsaid_ = 0;
    std::set<std::string> reasons_;
    bool said_no_room_ = false;
};

}  // namespace dp
