// SPDX-License-Identifier: Apache-2.0
//
// Lines for the user: standard error of the step's first task on this node. One write a line, never waiting
// for long.
#pragma once

#include <set>
#include <string>
#include <utility>

namespace dp {

void log_line(const std::string& text);

// A line that could be provoked by a stranger: the first few are printed, and of the rest the first for each
// reason; then they are only counted.
class StrangerLog {
 public:
    explicit StrangerLog(std::string host = "") : host_(std::move(host)) {}
    // "closed WHAT: WHY"
    void mention(const std::string& what, const std::string& why);
    // Said once: connections wait for a descriptor.
    void no_room(int error);
    // One line with the count of what was not printed, at the end.
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
