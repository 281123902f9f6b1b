// SPDX-License-Identifier: Apache-2.0
//
// linear: three linear layers, 1 -> 1000 -> 1000 -> 1 with nothing between them and the mean squared error,
// as in the DAWN tutorial, which fits y = 0.7 x + 0.3 with Adam.
#include "trainer/models/layers.hpp"

namespace dp::trainer {
namespace {

class Linear final : public LayeredModel {
 public:
    Linear()
        : LayeredModel(1),
          first_(parameters_, "linear.1", 1, 1000, Activation::none),
          second_(parameters_, "linear.2", 1000, 1000, Activation::none),
          third_(parameters_, "linear.3", 1000, 1, Activation::none) {
        layers_ = {&first_, &second_, &third_};
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

 private:
    LinearLayer first_, second_, third_;

    Tensor prediction(const Batch& batch) { return third_.forward(second_.forward(first_.forward(batch.x))); }
};

}  // namespace

std::unique_ptr<Model> make_linear(const ModelShape&) {
    return std::make_unique<Linear>();
}

}  // namespace dp::trainer
