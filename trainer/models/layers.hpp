// SPDX-License-Identifier: Apache-2.0
//
// The layers that models are made of. A layer declares its parameters when it is made, gets memory in
// place(), and owns the activations that its backward pass needs.
#ifndef TRAINER_MODELS_LAYERS_HPP
#define TRAINER_MODELS_LAYERS_HPP

#include <cmath>
#include <cstdint>
#include <string>

#include "trainer/devices/device.hpp"
#include "trainer/parameters.hpp"

namespace dp::trainer {

// y = act(x wᵀ + b). Initial values as PyTorch's nn.Linear draws them: even in ±1/√inputs, weights and
// biases.
class LinearLayer {
 public:
    LinearLayer(ParameterSet& parameters, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                Activation activation)
        : inputs_(inputs),
          outputs_(outputs),
          activation_(activation),
          weight_(&parameters.add(name + ".weight", {outputs, inputs}, bound())),
          bias_(&parameters.add(name + ".bias", {outputs}, bound())) {}

    void place(Device& device, std::int64_t rows) {
        device_ = &device;
        y_ = device.make(Type::f32, {rows, outputs_});
        dy_ = device.make(Type::f32, {rows, outputs_});
    }

    // The output stays valid until the next forward().
    Tensor forward(const Tensor& x) {
        Tensor y = y_.first_rows(x.rows());
        device_->linear(x, weight_->value, bias_->value, activation_, y);
        return y;
    }

    // Where the next layer (or the loss) writes the gradient of forward()'s output.
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }

    // Sets the gradients of the parameters from gradient(), and that of x, where dx is wanted.
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        if (activation_ == Activation::relu) device_->relu_backward(y_.first_rows(x.rows()), dy, dy);
        device_->linear_backward_parameters(dy, x, weight_->gradient, bias_->gradient);
        if (dx) device_->linear_backward_input(dy, weight_->value, dx);
    }

    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    std::int64_t outputs() const { return outputs_; }
    // A multiplication and an addition each count.
    double forward_flops_per_sample() const { return 2.0 * static_cast<double>(inputs_ * outputs_); }

 private:
    std::int64_t inputs_;
    std::int64_t outputs_;
    Activation activation_;
    Parameter* weight_;
    Parameter* bias_;
    Device* device_ = nullptr;
    Tensor y_;
    Tensor dy_;

    float bound() const { return 1.0f / std::sqrt(static_cast<float>(inputs_)); }
};

}  // namespace dp::trainer

#endif
