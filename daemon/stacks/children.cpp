// SPDX-License-Identifier: Apache-2.0
#include "stacks/children.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "stacks/thread_snapshot.hpp"

namespace dp::stacks {

// Those of all its threads.
std::vector<pid_t> children_of(pid_t pid) {
    std::vector<pid_t> children;
    const std::string tasks = fmt::format("/proc/{}/task", pid);
    std::error_code error;
    // A range-for would throw where the process ends meanwhile.
    for (std::filesystem::directory_iterator thread(tasks, error), end; !error && thread != end;
         thread.increment(error)) {
        const std::string text = read_file(thread->path().string() + "/children");
        for (const std::string_view child : split(text, ' '))
            if (const auto number = parse_number<pid_t>(child)) children.push_back(*number);
    }
    std::ranges::sort(children);
    return children;
}

std::vector<pid_t> descendants_of(pid_t pid, size_t most) {
    std::vector<pid_t> found = children_of(pid);
    for (size_t i = 0; i < found.size() && found.size() < most; ++i) {
        const auto children = children_of(found[i]);
        found.insert(found.end(), children.begin(), children.end());
    }
    found.resize(std::min(found.size(), most));
    return found;
}

pid_t awaited_by(pid_t pid) {
    constexpr int kDeepest = 64;
    for (int depth = 0; depth < kDeepest; ++depth) {
        const auto call = system_call_of(pid, pid);
        const auto children = children_of(pid);
        if (!call || !waits_for_child(*call) || children.empty()) break;
        pid = children.back();
    }
    return pid;
}

}  // namespace dp::stacks
