// SPDX-License-Identifier: Apache-2.0
//
// Lines for the user: standard error of the step's first task on this node. One write a line, never waiting
// for long.
#pragma once

#include <string>

namespace dp {

void log_line(const std::string& text);

// A line that could be provoked by a stranger: the first few are printed, then they are only counted.
class StrangerLog {
 public:
    void mention(const std::string& text);
    // One line with the count of what was not printed, at the end.
    void summary();

 private:
    static constexpr unsigned kPrinted = 3;
    unsigned seen_ = 0;
};

}  // namespace dp
