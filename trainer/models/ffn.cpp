// SPDX-License-Identifier: Apache-2.0
//
// ffn: a feed-forward network followed by logistic regression on 28x28 images in 10 classes, as in the SN10
// tutorial "FFNLogReg": 784 -> 256 -> 128 with ReLU, then 128 -> 10 with softmax cross-entropy.
#include "trainer/models/layers.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kPixels = 784;  // 28 x 28

class Ffn final : public LayeredModel {
 public:
    Ffn()
        : LayeredModel(kPixels),
          first_(parameters_, "ffn.1", kPixels, 256, Activation::relu),
          second_(parameters_, "ffn.2", 256, 128, Activation::relu),
          regression_(parameters_, "logistic_regression", 128, 10, Activation::none) {
        layers_ = {&first_, &second_, &regression_};
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        device_->softmax_cross_entropy(logits(batch), regression_.outputs(), batch.target, 0, metrics, {});
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        const auto rows = batch.x.rows();
        device_->softmax_cross_entropy(logits(batch), regression_.outputs(), batch.target, scale, metrics,
                                       regression_.gradient(rows));
        regression_.backward(second_.output(rows), second_.gradient(rows));
        second_.backward(first_.output(rows), first_.gradient(rows));
        first_.backward(batch.x, {});
    }

 private:
    LinearLayer first_, second_, regression_;

    Tensor logits(const Batch& batch) {
        return regression_.forward(second_.forward(first_.forward(batch.x)));
    }
};

}  // namespace

std::unique_ptr<Model> make_ffn(const ModelShape&) {
    return std::make_unique<Ffn>();
}

}  // namespace dp::trainer
