// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/small_all_reduce.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace dp::trainer {

SmallAllReduce::SmallAllReduce(std::shared_ptr<NodeMemory> memory, std::int64_t ranks,
                               std::chrono::milliseconds patience, Connect connect)
    : memory_(std::move(memory)),
      barrier_(memory_->few_barrier(), static_cast<std::uint32_t>(ranks)),
      patience_(patience),
      connect_(std::move(connect)) {}

bool SmallAllReduce::takes(const Tensor& tensor) {
    return tensor.type() == Type::f64 && tensor.elements() <= NodeMemory::kFew;
}

Result<void> SmallAllReduce::sum(const Tensor& numbers) {
    const std::span sum(numbers.data<double>(), static_cast<std::size_t>(numbers.elements()));
    turn_ ^= 1U;
    std::copy(sum.begin(), sum.end(), memory_->few(memory_->me(), turn_));
    DP_TRY(meet(barrier_, patience_));
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t rank = 0; rank < memory_->ranks(); ++rank) {
        const double* of_rank = memory_->few(rank, turn_);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank[i];
    }
    if (!connect_) return {};
    if (!between_) {
        auto connected = DP_TRY(connect_());
        between_ = std::move(connected);
    }
    return between_(numbers);
}

}  // namespace dp::trainer
