// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/peaks.hpp"

#include <algorithm>

#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kSide = 1024, kLargestSide = 8192;  // of the matrices
constexpr std::int64_t kNumbers = std::int64_t{32} << 20;  // of each tensor that is added: 128 MiB
constexpr int kTries = 5, kMostCalls = 64;
constexpr double kMeasurable = 2e-3;  // seconds, beside which it does not count what a call and a wait take

template <typename Act>
double seconds_of(Device& device, int calls, const Act& act) {
    const std::int64_t begin = steady_nanoseconds();
    for (int i = 0; i < calls; ++i) act();
    device.synchronize();
    return 1e-9 * static_cast<double>(steady_nanoseconds() - begin);
}

// Seconds of a call in the fastest of some tries, after one that does not count.
template <typename Act>
double fastest(Device& device, const Act& act) {
    seconds_of(device, 1, act);
    int calls = 1;
    double best = seconds_of(device, calls, act);
    while (best * calls < kMeasurable && calls < kMostCalls) {
        calls *= 2;
        best = seconds_of(device, calls, act) / calls;
    }
    for (int i = 1; i < kTries; ++i) best = std::min(best, seconds_of(device, calls, act) / calls);
    return best;
}

}  // namespace

std::optional<Peaks> measure_peaks(Device& device, Type type, std::int64_t ranks_of_host) {
    constexpr std::int64_t kBytes = 2 * kNumbers * static_cast<std::int64_t>(sizeof(float));
    // Not the last of it: others live here, too.
    const auto has_room = [&](std::int64_t bytes) {
        return !device.failed() && device.memory().may_take(bytes) &&
               device.available_memory(ranks_of_host).value_or(0) - device.memory().held() >= 2 * bytes;
    };
    if (!has_room(kBytes)) return std::nullopt;
    // Memory that was never written would all be one page, in caches.
    const auto written = [&](Type of, Shape shape) {
        Tensor tensor = device.make(of, std::move(shape));
        device.zero(tensor);
        return tensor;
    };
    Peaks peaks;
    // A GPU is not full with small ones.
    for (std::int64_t side = kSide; side <= kLargestSide; side *= 2) {
        if (!has_room(3 * side * side * static_cast<std::int64_t>(size_of(type)))) break;
        const Tensor x = written(type, {side, side}), w = written(type, {side, side}),
                     y = written(type, {side, side});
        if (device.failed()) return std::nullopt;
        const double seconds = fastest(device, [&] { device.linear(x, w, {}, Activation::none, y); });
        const auto numbers = static_cast<double>(side);
        peaks.flops = std::max(peaks.flops, 2 * numbers * numbers * numbers / seconds);
        if (seconds > kMeasurable) break;
    }
    const Tensor x = written(Type::f32, {kNumbers}), y = written(Type::f32, {kNumbers});
    if (device.failed()) return std::nullopt;
    peaks.bytes = 3.0 * sizeof(float) * kNumbers / fastest(device, [&] { device.add(x, y); });
    return peaks;
}

}  // namespace dp::trainer
