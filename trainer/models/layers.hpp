// SPDX-License-Identifier: Apache-2.0
//
// The layers of models. A layer declares its parameters when it is made, allocates in place(), owns the
// activations that its backward pass needs, and says when its gradients are final.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/random.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

class Layer {
 public:
    explicit Layer(std::int64_t outputs) : outputs_(outputs) {}
    virtual ~Layer() = default;

    virtual void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, outputs_});
        dy_ = device.make(type, {rows, outputs_});
    }

    // What forward() returned; valid until the next forward().
    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    // The buffer where the next layer (or the loss) writes the gradient of output(). A layer's backward()
    // sets the parameters' gradients from it, and x's if dx is wanted.
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    std::int64_t outputs() const { return outputs_; }

    // As Model's. Of the operations, multiplications and additions count.
    virtual double forward_flops_per_sample() const { return 0; }
    virtual std::int64_t activations_per_sample() const { return 2 * outputs_; }
    virtual std::int64_t statistics_per_sample() const { return 0; }
    virtual std::int64_t widest_operation(std::int64_t rows) const = 0;
    virtual std::optional<Convolution> convolution() const { return std::nullopt; }

 protected:
    Device* device_ = nullptr;
    Tensor y_, dy_;

 private:
    std::int64_t outputs_;
};

// A model that consists of layers: what it needs is the sum of what they need.
class LayeredModel : public Model {
 public:
    explicit LayeredModel(std::int64_t inputs) : inputs_(inputs) {}

    void place(Device& device, std::optional<std::uint64_t> seed, std::int64_t rows, Type type) override {
        device_ = &device;
        parameters_.place(device, seed, type);
        for (Layer* layer : layers_) layer->place(device, rows, type);
    }
    double forward_flops_per_sample() const override { return sum(0.0, &Layer::forward_flops_per_sample); }
    std::int64_t activations_per_sample() const override {
        return sum(inputs_, &Layer::activations_per_sample);
    }
    std::int64_t statistics_per_sample() const override {
        return sum(std::int64_t{0}, &Layer::statistics_per_sample);
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        std::int64_t widest = 0;
        for (const Layer* layer : layers_) widest = std::max(widest, layer->widest_operation(rows));
        return widest;
    }
    std::vector<Convolution> convolutions() const override {
        std::vector<Convolution> all;
        for (const Layer* layer : layers_)
            if (const auto one = layer->convolution()) all.push_back(*one);
        return all;
    }

 protected:
    Device* device_ = nullptr;
    std::vector<Layer*> layers_;  // set by the model, which owns them

 private:
    std::int64_t inputs_;  // numbers of a sample

    template <typename Number>
    Number sum(Number number, Number (Layer::*of)() const) const {
        for (const Layer* layer : layers_) number += (layer->*of)();
        return number;
    }
};

// y = act(x wᵀ + b). Initial values as in PyTorch's nn.Linear.
class LinearLayer : public Layer {
 public:
    LinearLayer(ParameterSet& parameters, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                Activation activation)
        : Layer(outputs),
          parameters_(&parameters),
          inputs_(inputs),
          activation_(activation),
          weight_(&parameters.add(name + ".weight", {outputs, inputs}, Initial::by_inputs(inputs))),
          bias_(&parameters.add(name + ".bias", {outputs}, Initial::by_inputs(inputs))) {}

    Tensor forward(const Tensor& x) {
        Tensor y = output(x.rows());
        device_->linear(x, weight_->compute_copy, bias_->compute_copy, activation_, y);
        return y;
    }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        if (activation_ == Activation::relu) device_->relu_backward(output(x.rows()), dy, dy);
        if (!weight_->is_frozen || !bias_->is_frozen)
            device_->linear_backward_parameters(dy, x, weight_->gradient, bias_->gradient);
        parameters_->completed(*weight_);
        if (dx) device_->linear_backward_input(dy, weight_->compute_copy, dx);
    }

    double forward_flops_per_sample() const override {
        return 2.0 * static_cast<double>(inputs_ * outputs());
    }
    // forward(), or an operation between y and dy.
    std::int64_t widest_operation(std::int64_t rows) const override {
        return std::max(rows * (inputs_ + outputs()) + (inputs_ + 1) * outputs(), 2 * rows * outputs());
    }

 private:
    const ParameterSet* parameters_;
    std::int64_t inputs_;
    Activation activation_;
    Parameter *weight_, *bias_;
};

// y = act(x * w + b) over images. Initial values as in PyTorch's nn.Conv2d.
class ConvolutionLayer : public Layer {
 public:
    ConvolutionLayer(ParameterSet& parameters, const std::string& name, Convolution shape,
                     Activation activation)
        : Layer(shape.y().numbers()),
          parameters_(&parameters),
          shape_(shape),
          activation_(activation),
          weight_(&parameters.add(name + ".weight",
                                  {shape.outputs, shape.x.channels, shape.kernel, shape.kernel},
                                  Initial::by_inputs(inputs_of_one()))),
          bias_(&parameters.add(name + ".bias", {shape.outputs}, Initial::by_inputs(inputs_of_one()))) {}

    Tensor forward(const Tensor& x) {
        Tensor y = output(x.rows());
        device_->convolve(shape_, x, weight_->compute_copy, bias_->compute_copy, activation_, y);
        return y;
    }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        if (activation_ == Activation::relu) device_->relu_backward(output(x.rows()), dy, dy);
        if (!weight_->is_frozen || !bias_->is_frozen)
            device_->convolve_backward_parameters(shape_, dy, x, weight_->gradient, bias_->gradient);
        parameters_->completed(*weight_);
        if (dx) device_->convolve_backward_input(shape_, dy, weight_->compute_copy, dx);
    }

    ImageShape shape() const { return shape_.y(); }
    std::optional<Convolution> convolution() const override { return shape_; }
    double forward_flops_per_sample() const override {
        return 2.0 * static_cast<double>(outputs() * inputs_of_one());
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        return std::max(rows * (shape_.x.numbers() + outputs()) + (inputs_of_one() + 1) * shape_.outputs,
                        2 * rows * outputs());
    }

 private:
    const ParameterSet* parameters_;
    Convolution shape_;
    Activation activation_;
    Parameter *weight_, *bias_;

    std::int64_t inputs_of_one() const { return shape_.x.channels * shape_.kernel * shape_.kernel; }
};

// The maximum of each 2 x 2 block.
class MaxPoolLayer : public Layer {
 public:
    explicit MaxPoolLayer(ImageShape x) : Layer(x.channels * (x.height / 2) * (x.width / 2)), x_(x) {}

    void place(Device& device, std::int64_t rows, Type type) override {
        Layer::place(device, rows, type);
        picked_ = device.make(Type::u8, {rows, outputs()});
    }

    Tensor forward(const Tensor& x) {
        Tensor y = output(x.rows());
        device_->max_pool(x_, x, y, picked_.first_rows(x.rows()));
        return y;
    }
    void backward(const Tensor& dx) {
        device_->max_pool_backward(x_, gradient(dx.rows()), picked_.first_rows(dx.rows()), dx);
    }

    std::int64_t activations_per_sample() const override { return 2 * outputs() + statistics_per_sample(); }
    // Which of four it was, a byte each.
    std::int64_t statistics_per_sample() const override { return outputs() / 4; }
    std::int64_t widest_operation(std::int64_t rows) const override {
        return rows * (x_.numbers() + outputs());
    }

 private:
    ImageShape x_;
    Tensor picked_;
};

// Dropout, in training only: see devices/dropout.hpp.
class DropoutLayer : public Layer {
 public:
    // `number`: the layer's number in its model.
    DropoutLayer(std::int64_t columns, float rate, std::uint64_t number)
        : Layer(columns), rate_(rate), number_(number) {}

    Tensor forward(const Tensor& x, const BatchDraw& draw) {
        Tensor y = output(x.rows());
        device_->dropout(x, of(draw), y);
        return y;
    }
    void backward(const BatchDraw& draw, const Tensor& dx) {
        device_->dropout(gradient(dx.rows()), of(draw), dx);
    }

    std::int64_t widest_operation(std::int64_t rows) const override { return 2 * rows * outputs(); }

 private:
    float rate_;
    std::uint64_t number_;

    Dropout of(const BatchDraw& draw) const {
        return {rate_, Random(draw.key, number_).bits(), draw.first_row};
    }
};

}  // namespace dp::trainer
