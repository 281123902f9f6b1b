// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/operation_log.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace dp::trainer {

std::string_view name_of(Operation operation) {
    static constexpr std::array<std::string_view, 54> kNames{"upload",
                                                             "download",
                                                             "zero",
                                                             "gather",
                                                             "linear",
                                                             "linear_backward_input",
                                                             "linear_backward_parameters",
                                                             "linear_add",
                                                             "relu_backward",
                                                             "gelu",
                                                             "gelu_backward",
                                                             "linear_gelu",
                                                             "linear_gelu_backward_input",
                                                             "embed",
                                                             "embed_backward",
                                                             "document_starts",
                                                             "layer_norm",
                                                             "layer_norm_backward",
                                                             "attention",
                                                             "attention_backward",
                                                             "convolve",
                                                             "convolve_backward_input",
                                                             "convolve_backward_parameters",
                                                             "add_channels",
                                                             "sum_channels",
                                                             "batch_norm_sums",
                                                             "batch_norm",
                                                             "batch_norm_backward_sums",
                                                             "batch_norm_backward",
                                                             "max_pool",
                                                             "max_pool_backward",
                                                             "dropout",
                                                             "softmax_cross_entropy",
                                                             "squared_error",
                                                             "sigmoid_dice",
                                                             "copy_columns",
                                                             "convert",
                                                             "add",
                                                             "scale",
                                                             "square_sum",
                                                             "clip",
                                                             "sgd",
                                                             "adam",
                                                             "all_reduce",
                                                             "small_all_reduce",
                                                             "all_gather",
                                                             "reduce_scatter",
                                                             "broadcast",
                                                             "start_all_reduces",
                                                             "wait_all_reduces",
                                                             "node_barrier",
                                                             "send",
                                                             "wait_send",
                                                             "receive"};
    static_assert(kNames.size() == static_cast<std::size_t>(Operation::receive) + 1);
    return kNames[static_cast<std::size_t>(operation)];
}

std::int64_t steady_nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void OperationLog::name(const Tensor& tensor, Named what, const std::string& layer) {
    if (!tensor) return;
    const auto known = std::ranges::find(owners_, layer);
    const auto owner = static_cast<std::uint32_t>(known - owners_.begin());
    if (known == owners_.end()) owners_.push_back(layer);
    names_[tensor.data<void>()] = {what, owner, tensor.bytes()};
}

void OperationLog::start() {
    is_on_ = !is_settled_;
    if (is_on_ && timeline_) timeline_->start();
}

Result<void> OperationLog::settle() {
    if (!timeline_ || std::exchange(is_settled_, true)) return {};
    stop();
    auto works = DP_TRY(timeline_->works());
    if (works.empty() && !operations_.empty())
        return fail(Fault::device,
                    "the GPU's profiler has reported nothing; is another one attached to this process?");
    auto aside = give_device_times(operations_, std::move(works));
    if (!aside)
        return fail(Fault::device, "nothing that the GPU's profiler has reported belongs to an operation");
    aside_ = std::move(*aside);
    return {};
}

void OperationLog::clear() {
    if (timeline_) timeline_->stop();
    OperationLog fresh;
    fresh.timeline_ = std::move(timeline_);
    *this = std::move(fresh);
}

void OperationLog::begin(Operation operation, double flops, std::initializer_list<Use> uses) {
    is_inside_ = true;
    if (!is_on_) return timeline_->begin(dp::trainer::name_of(operation), "");
    // The optimizer and the collectives are not a layer's.
    const std::uint32_t owner = operation < Operation::square_sum ? owner_of(uses) : 0;
    LoggedOperation one{operation, owner, 0, 0, flops, 0, static_cast<std::uint32_t>(uses_.size()), 0};
    for (const auto& [tensor, access] : uses) {
        if (!*tensor) continue;
        const std::uint32_t memory = memory_of(*tensor);
        if (const Name* name = name_of(*tensor)) memories_[memory].named = name->what;
        const auto bytes = static_cast<double>(tensor->bytes());
        if (access != Access::rows) one.bytes += bytes * (access == Access::update ? 2 : 1);
        if (one.owner != 0 && (access == Access::write || access == Access::update)) {
            writers_[tensor->data<void>()] = one.owner;
            memories_[memory].owner = one.owner;
        }
        uses_.push_back({memory, access, bytes});
        ++one.uses;
    }
    operations_.push_back(one);
    operations_.back().begin = steady_nanoseconds();
    if (timeline_) timeline_->begin(dp::trainer::name_of(operation), owners_[owner]);
}

void OperationLog::end() {
    if (timeline_) timeline_->end();
    if (is_on_) operations_.back().end = steady_nanoseconds();
    is_inside_ = false;
}

const OperationLog::Name* OperationLog::name_of(const Tensor& tensor) const {
    const auto found = names_.find(tensor.data<void>());
    return found != names_.end() && tensor.bytes() <= found->second.bytes ? &found->second : nullptr;
}

std::uint32_t OperationLog::owner_of(std::initializer_list<Use> uses) const {
    for (const Use& use : uses)
        if (const Name* name = name_of(*use.tensor)) return name->owner;
    for (const Use& use : uses)
        if (const auto found = writers_.find(use.tensor->data<void>()); found != writers_.end())
            return found->second;
    return 0;
}

// The largest part of it that was used.
std::uint32_t OperationLog::memory_of(const Tensor& tensor) {
    const auto [found, is_new] =
        memory_of_.try_emplace(tensor.allocation(), static_cast<std::uint32_t>(memories_.size()));
    if (is_new) memories_.push_back({tensor.allocation()});
    LoggedMemory& memory = memories_[found->second];
    const auto end = tensor.data<char>() - static_cast<const char*>(memory.address) +
                     static_cast<std::ptrdiff_t>(tensor.bytes());
    memory.bytes = std::max<std::int64_t>(memory.bytes, end);
    return found->second;
}

}  // namespace dp::trainer
