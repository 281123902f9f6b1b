// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on the CPU, by oneDNN. What it prepares for a shape is kept.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Shapes as in device.hpp, empty biases too. Each call returns why it failed, or nothing.
class CpuConvolutions {
 public:
    // The device gives the memory.
    explicit CpuConvolutions(Device& device);
    ~CpuConvolutions();
    CpuConvolutions(const CpuConvolutions&) = delete;
    CpuConvolutions& operator=(const CpuConvolutions&) = delete;

    std::optional<std::string> forward(const Convolution& c, const Tensor& x, const Tensor& w,
                                       const Tensor& b, Activation activation, const Tensor& y);
    std::optional<std::string> backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                              const Tensor& dx);
    std::optional<std::string> backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                                   const Tensor& dw, const Tensor& db);

    // As of Device.
    std::int64_t scratch(const Convolution& c, std::int64_t rows) const;
    void reserve(std::int64_t bytes);

 private:
    struct Prepared;
    std::unique_ptr<Prepared> prepared_;
};

}  // namespace dp::trainer
