// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/peaks.hpp"

#include <algorithm>

#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kSide = 1024;                       // of the matrices
constexpr std::int64_t kNumbers = std::int64_t{32} << 20;  // of each tensor that is added: 128 MiB
constexpr int kTries = 5;

// Seconds of the fastest of some calls, after one that does not count.
template <typename Act>
double fastest(Device& device, const Act& act) {
    double best = 0;
    for (int i = 0; i <= kTries; ++i) {
        const std::int64_t begin = steady_nanoseconds();
        act();
        device.synchronize();
        const double seconds = 1e-9 * static_cast<double>(steady_nanoseconds() - begin);
        best = i <= 1 ? seconds : std::min(best, seconds);
    }
    return best;
}

}  // namespace

std::optional<Peaks> measure_peaks(Device& device, Type type, std::int64_t ranks_of_host) {
    constexpr std::int64_t kBytes = 2 * kNumbers * static_cast<std::int64_t>(sizeof(float));
    // Not the last of it: others live here, too.
    if (device.failed() || !device.memory().may_take(kBytes) ||
        device.available_memory(ranks_of_host).value_or(0) < 2 * kBytes)
        return std::nullopt;
    // Memory that was never written would all be one page, in caches.
    const auto written = [&](Type of, Shape shape) {
        Tensor tensor = device.make(of, std::move(shape));
        device.zero(tensor);
        return tensor;
    };
    Peaks peaks;
    {
        const Tensor x = written(type, {kSide, kSide}), w = written(type, {kSide, kSide}),
                     y = written(type, {kSide, kSide});
        if (device.failed()) return std::nullopt;
        peaks.flops = 2.0 * kSide * kSide * kSide /
                      fastest(device, [&] { device.linear(x, w, {}, Activation::none, y); });
    }
    const Tensor x = written(Type::f32, {kNumbers}), y = written(Type::f32, {kNumbers});
    if (device.failed()) return std::nullopt;
    peaks.bytes = 3.0 * sizeof(float) * kNumbers / fastest(device, [&] { device.add(x, y); });
    return peaks;
}

}  // namespace dp::trainer
