// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on bf16 tensors as they are, for processors that multiply bf16 (AMX, AVX512-BF16): oneDNN's
// matrix products, with the bias and what follows it in the same pass. What it prepares for a shape is kept.
#pragma once

#include <memory>

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

class NativeProducts {
 public:
    NativeProducts();
    ~NativeProducts();
    NativeProducts(const NativeProducts&) = delete;
    NativeProducts& operator=(const NativeProducts&) = delete;

    // As of Device, which gives shapes and strides. False where oneDNN refuses.
    // y = act(x wᵀ + b + added); b and added may be empty.
    bool linear(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& added, Activation activation,
                const Tensor& y);
    bool linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx);
    bool linear_backward_weights(const Tensor& dy, const Tensor& x, const Tensor& dw, Write write);

 private:
    struct Prepared;
    std::unique_ptr<Prepared> prepared_;
};

}  // namespace dp::trainer::cpu
