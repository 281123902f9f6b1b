// SPDX-License-Identifier: Apache-2.0
//
// linear: three linear layers, 1 -> 1000 -> 1000 -> 1 with nothing between them and the mean squared error,
// as in the DAWN tutorial, which fits y = 0.7 x + 0.3 with Adam.
#include <algorithm>

#include "trainer/models/layers.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {
namespace {

class Linear final : public Model {
 public:
    Linear()
        : first_(parameters_, "linear.1", 1, 1000, Activation::none),
          second_(parameters_, "linear.2", 1000, 1000, Activation::none),
          third_(parameters_, "linear.3", 1000, 1, Activation::none) {}

    void place(Device& device, std::uint64_t seed, std::int64_t rows, Type type) override {
        device_ = &device;
        parameters_.place(device, seed, type);
        for (auto* layer : {&first_, &second_, &third_}) layer->place(device, rows, type);
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        device_->squared_error(prediction(batch), batch.target, 0, metrics, {});
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        const auto rows = batch.x.rows();
        device_->squared_error(prediction(batch), batch.target, scale, metrics, third_.gradient(rows));
        third_.backward(second_.output(rows), second_.gradient(rows));
        second_.backward(first_.output(rows), first_.gradient(rows));
        first_.backward(batch.x, {});
    }

    double forward_flops_per_sample() const override {
        return first_.forward_flops_per_sample() + second_.forward_flops_per_sample() +
               third_.forward_flops_per_sample();
    }
    std::int64_t activations_per_sample() const override {
        return 1 + 2 * (first_.outputs() + second_.outputs() + third_.outputs());
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        return std::max(
            {first_.widest_operation(rows), second_.widest_operation(rows), third_.widest_operation(rows)});
    }

 private:
    Device* device_ = nullptr;
    LinearLayer first_;
    LinearLayer second_;
    LinearLayer third_;

    Tensor prediction(const Batch& batch) { return third_.forward(second_.forward(first_.forward(batch.x))); }
};

}  // namespace

std::unique_ptr<Model> make_linear(const ModelShape&) {
    return std::make_unique<Linear>();
}

}  // namespace dp::trainer
