// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory/available.hpp"

#include <algorithm>
#include <limits>

#include "trainer/parallel/agreement.hpp"

namespace dp::trainer {

std::int64_t available_here(Device& device, const LaunchContext& here) {
    constexpr std::int64_t kUnknown = std::int64_t{1} << 62;
    std::int64_t available = device.available_memory(here.local_size).value_or(kUnknown);
    if (here.gpu.is_part() && device.name() == "cuda")
        available = available / here.gpu.parts * here.gpu.count;
    if (const auto limit = device.memory().limit()) available = std::min(available, *limit);
    return available;
}

Result<std::int64_t> available_to_every_rank(Device& device, Communicator& communicator,
                                             const LaunchContext& here) {
    const double mine = static_cast<double>(available_here(device, here));
    const double least = DP_TRY(largest_of_all_ranks(-mine, device, communicator));
    return static_cast<std::int64_t>(-least);
}

Result<std::optional<std::int64_t>> measured_by_every_rank(std::optional<std::int64_t> peak, Device& device,
                                                           Communicator& communicator) {
    constexpr double kNothing = std::numeric_limits<double>::infinity();
    const double mine = peak ? static_cast<double>(*peak) : kNothing;
    const double most = DP_TRY(largest_of_all_ranks(mine, device, communicator));
    return most == kNothing ? std::nullopt : std::optional(static_cast<std::int64_t>(most));
}

Error with_advice(Error error, Device& device, const MemoryCase& memory_case) {
    if (device.memory().is_exhausted())
        error.message += ": " + batch_advice(memory_case, device.memory().peak());
    return error;
}

}  // namespace dp::trainer
