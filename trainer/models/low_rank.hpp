// SPDX-License-Identifier: Apache-2.0
//
// LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"): a weight W that keeps its values, and is learnt by
// what is added to it, W + (alpha / rank) B A, of A [rank, inputs] and B [outputs, rank]. A begins as PEFT and the paper's own
// loralib draw it, B with zeros, so the training begins with the model as it was.
//
// The sum is the compute copy that all operations take, made anew after each step, so a model computes as it does without: nothing
// else in it knows of adapters. The gradient of the sum, which the backward pass makes of one weight at a time in memory that all
// share, gives those of A and B. So what LoRA saves is not products of the weights that have adapters, but sums of gradients and
// the optimizer's state for W.
#pragma once

#include <span>
#include <vector>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

struct Parameter;

class LowRank {
 public:
    // They outlive this. a [rank, inputs], b [outputs, rank].
    LowRank(Parameter& weight, const Parameter& a, const Parameter& b, float scale)
        : weight_(weight), a_(a), b_(b), scale_(scale) {}

    const Parameter& weight() const { return weight_; }
    const Parameter& a() const { return a_; }
    const Parameter& b() const { return b_; }
    float scale() const { return scale_; }
    // Whether A or B is not frozen.
    bool learns() const;

    // Gives the weight, which is placed, a compute copy of its own. `room`: f32, as large as the weight; where the copy is f32, unused.
    void place(Device& device, Type compute_type, Tensor room);
    // Sets it. Queued, as an operation is.
    void merge(Device& device) const;
    // Sets the gradients of A and B from the weight's.
    void backward(Device& device) const;

 private:
    Parameter& weight_;
    const Parameter &a_, &b_;
    float scale_;
    Tensor sum_;  // f32
};

// The same on the host, in double precision: weight + scale b a.
std::vector<float> merged(std::span<const float> weight, std::span<const float> a, std::span<const float> b,
                          std::int64_t rank, float scale);

}  // namespace dp::trainer
