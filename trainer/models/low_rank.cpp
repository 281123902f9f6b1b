// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/low_rank.hpp"

#include "trainer/models/parameters.hpp"

namespace dp::trainer {

void LowRank::place(Device& device, Type compute_type, Tensor room) {
    weight_.compute_copy = device.make(compute_type, weight_.shape);
    sum_ = compute_type == Type::f32 ? weight_.compute_copy : room.view(0, weight_.shape);
}

bool LowRank::learns() const {
    return !a_.is_frozen || !b_.is_frozen;
}

void LowRank::merge(Device& device) const {
    device.linear_backward_input(b_.value, a_.value, sum_);  // b a
    device.scale(sum_, scale_);
    device.add(weight_.value, sum_);
    if (weight_.compute_copy.type() != Type::f32) device.convert(sum_, weight_.compute_copy);
}

void LowRank::backward(Device& device) const {
    const Tensor& d = weight_.gradient;
    device.linear(d, a_.value, {}, Activation::none, b_.gradient);    // d aᵀ
    device.linear_backward_parameters(b_.value, d, a_.gradient, {});  // bᵀ d
    device.scale(b_.gradient, scale_);
    device.scale(a_.gradient, scale_);
}

std::vector<float> merged(std::span<const float> weight, std::span<const float> a, std::span<const float> b,
                          std::int64_t rank, float scale) {
    const auto r = static_cast<std::size_t>(rank), outputs = b.size() / r, inputs = a.size() / r;
    std::vector<float> sum(weight.begin(), weight.end());
    std::vector<double> row(inputs);
    for (std::size_t output = 0; output < outputs; ++output) {
        std::fill(row.begin(), row.end(), 0.0);
        for (std::size_t k = 0; k < r; ++k)
            for (std::size_t input = 0; input < inputs; ++input)
                row[input] +=
                    static_cast<double>(b[output * r + k]) * static_cast<double>(a[k * inputs + input]);
        for (std::size_t input = 0; input < inputs; ++input) {
            float& to = sum[output * inputs + input];
            to = static_cast<float>(static_cast<double>(to) + static_cast<double>(scale) * row[input]);
        }
    }
    return sum;
}

}  // namespace dp::trainer
