// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory/available.hpp"

#include <algorithm>
#include <array>

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

Result<CommonMemory> common_memory(std::int64_t available, std::optional<std::int64_t> peak, Device& device,
                                   Communicator& communicator) {
    constexpr std::int64_t kNothing = -1;
    const std::array mine{available, peak.value_or(kNothing)};
    const auto all = DP_TRY(gather_of_all_ranks(mine, device, communicator));
    CommonMemory common{available, peak};
    for (std::size_t rank = 0; rank < all.size() / mine.size(); ++rank) {
        const std::int64_t theirs = all[mine.size() * rank + 1];
        common.available = std::min(common.available, all[mine.size() * rank]);
        if (theirs == kNothing)
            common.peak.reset();
        else if (common.peak)
            common.peak = std::max(*common.peak, theirs);
    }
    return common;
}

Error with_advice(Error error, Device& device, const MemoryCase& memory_case) {
    if (device.memory().is_exhausted())
        error.message += ": " + batch_advice(memory_case, device.memory().peak());
    return error;
}

}  // namespace dp::trainer
