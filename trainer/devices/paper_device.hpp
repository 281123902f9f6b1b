// SPDX-License-Identifier: Apache-2.0
//
// A device that does nothing: its tensors are addresses without memory, and what is downloaded is zeros. As Profiled<PaperDevice>
// (profiled.hpp) it tells which operations a model asks for, with their shapes, without the machine that they would need:
// profile/paper_step.hpp.
#pragma once

#include <sys/mman.h>

#include <cstring>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

class PaperDevice : public Device {
 public:
    std::string_view name() const override { return "paper"; }
    std::string description() const override { return "paper"; }
    void synchronize() override {}
    DeviceFacts facts() const override { return {}; }
    std::optional<std::int64_t> available_memory(std::int64_t) const override { return std::nullopt; }

    void upload(const void*, Out) override {}
    void download(In from, void* to) override { std::memset(to, 0, from.bytes()); }
    void zero(Out) override {}
    void gather(In, In, Affine, Out) override {}
    void linear(In, In, In, Activation, Out) override {}
    void linear_backward_input(In, In, Out) override {}
    void linear_backward_parameters(In, In, Out, Out, Write) override {}
    void relu_backward(In, In, Out) override {}
    void gelu(In, Out) override {}
    void gelu_backward(In, In, Out) override {}
    void embed(In, In, In, Out) override {}
    void embed_backward(In, In, InOut, InOut) override {}
    void layer_norm(In, In, In, Out, Out) override {}
    void layer_norm_backward(In, In, In, In, InOut, Out, Out) override {}
    void document_starts(In, std::int32_t, Out) override {}
    void attention(const Attention&, In, Out, Out) override {}
    void attention_backward(const Attention&, In, In, In, In, Out) override {}
    void convolve(const Convolution&, In, In, In, Activation, Out) override {}
    void convolve_backward_input(const Convolution&, In, In, Out) override {}
    void convolve_backward_parameters(const Convolution&, In, In, Out, Out) override {}
    std::int64_t convolution_scratch(const Convolution&, std::int64_t, Type) const override { return 0; }
    void add_channels(ImageShape, In, InOut) override {}
    void sum_channels(ImageShape, In, Out) override {}
    void batch_norm_sums(const BatchNorm&, In, Out) override {}
    void batch_norm(const BatchNorm&, In, In, std::int64_t, In, In, InOut, Out, Out) override {}
    void batch_norm_inference(const BatchNorm&, In, In, In, In, Out) override {}
    void batch_norm_backward_sums(const BatchNorm&, In, In, In, In, Out, Out, Out, Out) override {}
    void batch_norm_backward(const BatchNorm&, In, In, In, In, std::int64_t, InOut) override {}
    void max_pool(ImageShape, In, Out, Out) override {}
    void max_pool_backward(ImageShape, In, In, Out) override {}
    void dropout(In, Dropout, Out) override {}
    void softmax_cross_entropy(In, std::int64_t, In, float, InOut, Out) override {}
    void squared_error(In, In, float, InOut, Out) override {}
    void sigmoid_dice(In, In, float, InOut, Out) override {}
    void copy_columns(In, std::int64_t, InOut, std::int64_t, std::int64_t, Write) override {}
    void convert(In, Out) override {}
    void add(In, InOut) override {}
    void scale(InOut, float) override {}
    void square_sum(In, Out) override {}
    void clip(In, double, Out) override {}
    void sgd(InOut, In, InOut, SgdStep) override {}
    void adam(InOut, In, InOut, InOut, AdamStep) override {}

 protected:
    // Addresses of their own tell tensors apart; who reads or writes there has mistaken them for host memory, and ends.
    std::shared_ptr<void> allocate(std::size_t bytes) override {
        void* reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) return nullptr;
        return {reserved, [bytes](void* there) { munmap(there, bytes); }};
    }
};

}  // namespace dp::trainer
