// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/device_timeline.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {
namespace {

// Leaves those that an operation queued, each with its operation.
void find_operations(const std::vector<LoggedOperation>& operations, std::vector<DeviceWork>& works) {
    std::erase_if(works, [&](DeviceWork& work) {
        const auto after = std::ranges::upper_bound(operations, work.queued, {}, &LoggedOperation::begin);
        if (after == operations.begin() || work.queued > std::prev(after)->end) return true;
        work.operation = static_cast<std::size_t>(std::prev(after) - operations.begin());
        return false;
    });
}

}  // namespace

std::optional<std::vector<DeviceWork>> give_device_times(std::vector<LoggedOperation>& operations,
                                                         std::vector<DeviceWork> works) {
    find_operations(operations, works);
    std::ranges::stable_sort(works, {}, &DeviceWork::begin);
    if (works.empty()) return std::nullopt;
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    for (LoggedOperation& one : operations) one.begin = kNever;
    std::vector<DeviceWork> aside;
    for (const DeviceWork& one : works) {
        LoggedOperation& operation = operations[one.operation];
        if (operation.operation == Operation::start_all_reduces) {
            aside.push_back(one);
            continue;
        }
        if (operation.begin == kNever) operation.end = one.end;
        operation.begin = std::min(operation.begin, one.begin);
        operation.end = std::max(operation.end, one.end);
    }
    // When there is next something to do.
    std::vector<std::int64_t> next(operations.size());
    std::int64_t following = kNever;
    for (std::size_t i = operations.size(); i-- > 0;) {
        next[i] = following;
        if (operations[i].begin != kNever) following = operations[i].begin;
    }
    // Until when there was something to do.
    std::int64_t now = std::min(works.front().begin, following);
    auto begun = aside.begin();
    std::int64_t aside_until = now;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        LoggedOperation& one = operations[i];
        for (; begun != aside.end() && begun->operation <= i; ++begun)
            aside_until = std::max(aside_until, begun->end);
        const bool waits = one.operation == Operation::wait_all_reduces;
        if (one.begin == kNever) one.end = waits ? std::min(aside_until, next[i]) : now;
        one.begin = one.begin == kNever || waits ? now : std::max(one.begin, now);
        now = one.end = std::max(one.end, one.begin);
    }
    return aside;
}

}  // namespace dp::trainer
