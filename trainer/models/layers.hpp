// SPDX-License-Identifier: Apache-2.0
//
// The layers of models. A layer declares its parameters when it is made, allocates in place() for
// activations of the given type, owns the activations that its backward pass needs, and says when its
// gradients are final.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "trainer/base/random.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// y = act(x wᵀ + b). Initial values as in PyTorch's nn.Linear: weights and biases uniform in ±1/√inputs.
class LinearLayer {
 public:
    LinearLayer(ParameterSet& parameters, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                Activation activation)
        : parameters_(&parameters),
          inputs_(inputs),
          outputs_(outputs),
          activation_(activation),
          weight_(&parameters.add(name + ".weight", {outputs, inputs}, bound())),
          bias_(&parameters.add(name + ".bias", {outputs}, bound())) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, outputs_});
        dy_ = device.make(type, {rows, outputs_});
    }

    // The output stays valid until the next forward().
    Tensor forward(const Tensor& x) {
        Tensor y = y_.first_rows(x.rows());
        device_->linear(x, weight_->working, bias_->working, activation_, y);
        return y;
    }

    // The buffer where the next layer (or the loss) writes the gradient of forward()'s output.
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }

    // Sets the parameters' gradients from gradient(), and x's if dx is wanted.
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        if (activation_ == Activation::relu) device_->relu_backward(y_.first_rows(x.rows()), dy, dy);
        device_->linear_backward_parameters(dy, x, weight_->gradient, bias_->gradient);
        parameters_->completed(*weight_);
        if (dx) device_->linear_backward_input(dy, weight_->working, dx);
    }

    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    std::int64_t outputs() const { return outputs_; }
    // Counts multiplications and additions.
    double forward_flops_per_sample() const { return 2.0 * static_cast<double>(inputs_ * outputs_); }
    // As Model's: forward(), or an operation between y and dy.
    std::int64_t widest_operation(std::int64_t rows) const {
        return std::max(rows * (inputs_ + outputs_) + (inputs_ + 1) * outputs_, 2 * rows * outputs_);
    }

 private:
    const ParameterSet* parameters_;
    std::int64_t inputs_;
    std::int64_t outputs_;
    Activation activation_;
    Parameter* weight_;
    Parameter* bias_;
    Device* device_ = nullptr;
    Tensor y_;
    Tensor dy_;

    Initial bound() const { return Initial::even(1.0f / std::sqrt(static_cast<float>(inputs_))); }
};

// y = act(x * w + b) over images. Initial values as in PyTorch's nn.Conv2d: uniform in ±1/√(inputs
// per output element).
class ConvolutionLayer {
 public:
    ConvolutionLayer(ParameterSet& parameters, const std::string& name, Convolution shape,
                     Activation activation)
        : parameters_(&parameters),
          shape_(shape),
          activation_(activation),
          weight_(&parameters.add(name + ".weight",
                                  {shape.outputs, shape.x.channels, shape.kernel, shape.kernel}, bound())),
          bias_(&parameters.add(name + ".bias", {shape.outputs}, bound())) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, outputs()});
        dy_ = device.make(type, {rows, outputs()});
    }

    // As LinearLayer's.
    Tensor forward(const Tensor& x) {
        Tensor y = output(x.rows());
        device_->convolve(shape_, x, weight_->working, bias_->working, activation_, y);
        return y;
    }
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        if (activation_ == Activation::relu) device_->relu_backward(output(x.rows()), dy, dy);
        device_->convolve_backward_parameters(shape_, dy, x, weight_->gradient, bias_->gradient);
        parameters_->completed(*weight_);
        if (dx) device_->convolve_backward_input(shape_, dy, weight_->working, dx);
    }

    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    const Convolution& convolution() const { return shape_; }
    ImageShape shape() const { return shape_.y(); }
    std::int64_t outputs() const { return shape_.y().numbers(); }
    double forward_flops_per_sample() const { return 2.0 * static_cast<double>(outputs() * inputs_of_one()); }
    std::int64_t widest_operation(std::int64_t rows) const {
        return std::max(rows * (shape_.x.numbers() + outputs()) + (inputs_of_one() + 1) * shape_.outputs,
                        2 * rows * outputs());
    }

 private:
    const ParameterSet* parameters_;
    Convolution shape_;
    Activation activation_;
    Parameter* weight_;
    Parameter* bias_;
    Device* device_ = nullptr;
    Tensor y_;
    Tensor dy_;

    std::int64_t inputs_of_one() const { return shape_.x.channels * shape_.kernel * shape_.kernel; }
    Initial bound() const { return Initial::even(1.0f / std::sqrt(static_cast<float>(inputs_of_one()))); }
};

// The maximum of each 2 x 2 block.
class MaxPoolLayer {
 public:
    explicit MaxPoolLayer(ImageShape x) : x_(x) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, outputs()});
        dy_ = device.make(type, {rows, outputs()});
        picked_ = device.make(Type::u8, {rows, outputs()});
    }

    Tensor forward(const Tensor& x) {
        Tensor y = y_.first_rows(x.rows());
        device_->max_pool(x_, x, y, picked_.first_rows(x.rows()));
        return y;
    }
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    void backward(const Tensor& dx) {
        device_->max_pool_backward(x_, gradient(dx.rows()), picked_.first_rows(dx.rows()), dx);
    }

    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    std::int64_t outputs() const { return x_.channels * (x_.height / 2) * (x_.width / 2); }
    std::int64_t widest_operation(std::int64_t rows) const { return rows * (x_.numbers() + outputs()); }

 private:
    ImageShape x_;
    Device* device_ = nullptr;
    Tensor y_;
    Tensor dy_;
    Tensor picked_;
};

// Dropout, in training only: see devices/dropout.hpp.
class DropoutLayer {
 public:
    // `number`: the layer's number in its model.
    DropoutLayer(std::int64_t columns, float rate, std::uint64_t number)
        : columns_(columns), rate_(rate), number_(number) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, columns_});
        dy_ = device.make(type, {rows, columns_});
    }

    Tensor forward(const Tensor& x, const BatchDraw& draw) {
        Tensor y = y_.first_rows(x.rows());
        device_->dropout(x, of(draw), y);
        return y;
    }
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    void backward(const BatchDraw& draw, const Tensor& dx) {
        device_->dropout(gradient(dx.rows()), of(draw), dx);
    }

    std::int64_t outputs() const { return columns_; }
    std::int64_t widest_operation(std::int64_t rows) const { return 2 * rows * columns_; }

 private:
    std::int64_t columns_;
    float rate_;
    std::uint64_t number_;
    Device* device_ = nullptr;
    Tensor y_;
    Tensor dy_;

    Dropout of(const BatchDraw& draw) const {
        return {rate_, Random(draw.key, number_).bits(), draw.first_row};
    }
};

}  // namespace dp::trainer
