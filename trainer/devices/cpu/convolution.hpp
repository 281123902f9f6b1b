// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on the CPU, by oneDNN. What it prepares for a shape is kept.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// What is computed of a convolution: y, dx, or dw and db.
enum class Direction { forward, backward_input, backward_parameters };

class CpuConvolutions {
 public:
    // The device gives the memory.
    explicit CpuConvolutions(Device& device);
    ~CpuConvolutions();
    CpuConvolutions(const CpuConvolutions&) = delete;
    CpuConvolutions& operator=(const CpuConvolutions&) = delete;

    // x and y are of one type, f32 or bf16, and so are the parameters, but for their gradients, which are f32.
    // Backward, the tensors are their gradients, but for x of the parameters' and w of the input's. b may be
    // empty. Why it failed, or nothing.
    std::optional<std::string> run(const Convolution& c, Direction direction, Activation activation,
                                   const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& b);

    // As of Device.
    std::int64_t scratch(const Convolution& c, std::int64_t rows, Type type) const;
    void reserve(std::int64_t bytes);

 private:
    struct Prepared;
    std::unique_ptr<Prepared> prepared_;
};

}  // namespace dp::trainer
