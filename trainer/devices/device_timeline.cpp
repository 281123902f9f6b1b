// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/device_timeline.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {
namespace {

bool is_begun_aside(Operation operation) {
    return operation == Operation::start_all_reduces;
}

// The stream of what is not begun aside.
std::optional<std::uint64_t> own_stream(const std::vector<LoggedOperation>& operations,
                                        const std::vector<DeviceWork>& works) {
    for (const DeviceWork& one : works)
        if (!is_begun_aside(operations[one.operation].operation)) return one.stream;
    return std::nullopt;
}

}  // namespace

std::vector<DeviceWork> give_device_times(std::vector<LoggedOperation>& operations,
                                          std::vector<DeviceWork> works) {
    std::ranges::stable_sort(works, {}, &DeviceWork::begin);
    if (operations.empty() || works.empty()) return {};
    const auto own = own_stream(operations, works);
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    for (LoggedOperation& one : operations) one.begin = kNever;
    std::vector<DeviceWork> aside;
    for (const DeviceWork& one : works) {
        if (one.stream != own) {
            aside.push_back(one);
            continue;
        }
        LoggedOperation& operation = operations[one.operation];
        if (operation.begin == kNever) operation.end = one.end;
        operation.begin = std::min(operation.begin, one.begin);
        operation.end = std::max(operation.end, one.end);
    }
    // When the stream has next something to do.
    std::vector<std::int64_t> next(operations.size());
    std::int64_t following = kNever;
    for (std::size_t i = operations.size(); i-- > 0;) {
        next[i] = following;
        if (operations[i].begin != kNever) following = operations[i].begin;
    }
    // Until when it had something to do.
    std::int64_t now = std::min(works.front().begin, following);
    auto begun = aside.begin();
    std::int64_t aside_until = now;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        LoggedOperation& one = operations[i];
        for (; begun != aside.end() && begun->operation <= i; ++begun)
            aside_until = std::max(aside_until, begun->end);
        if (one.begin == kNever) {
            const bool waits = one.operation == Operation::wait_all_reduces;
            one.begin = now;
            one.end = waits ? std::max(now, std::min(aside_until, next[i])) : now;
        }
        one.begin = std::max(one.begin, now);
        now = one.end = std::max(one.end, one.begin);
    }
    return aside;
}

}  // namespace dp::trainer
