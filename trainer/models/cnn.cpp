// SPDX-License-Identifier: Apache-2.0
//
// cnn: the convolutional network of the Cyclone tutorial (and of PyTorch's MNIST example) on 28x28 images in
// 10 classes: 3x3 convolutions of 32 and 64 channels with ReLU, 2x2 max pooling, dropout 0.25, then 9216 ->
// 128 with ReLU, dropout 0.5, and 128 -> 10 with softmax cross-entropy.
#include "trainer/models/layers.hpp"

namespace dp::trainer {
namespace {

constexpr ImageShape kImage{1, 28, 28};

class Cnn final : public LayeredModel {
 public:
    Cnn()
        : LayeredModel(kImage.numbers()),
          first_(parameters_, "conv1", {kImage, 32, 3, 0}, Activation::relu),
          second_(parameters_, "conv2", {first_.shape(), 64, 3, 0}, Activation::relu),
          pool_(second_.shape()),
          dropout1_(pool_.outputs(), 0.25f, 1),
          hidden_(parameters_, "fc1", pool_.outputs(), 128, Activation::relu),
          dropout2_(128, 0.5f, 2),
          classes_(parameters_, "fc2", 128, 10, Activation::none) {
        layers_ = {&first_, &second_, &pool_, &dropout1_, &hidden_, &dropout2_, &classes_};
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        const Tensor logits = classes_.forward(hidden_.forward(features(batch)));
        device_->softmax_cross_entropy(logits, logits.columns(), batch.target, 0, metrics, {});
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        const auto rows = batch.x.rows();
        const Tensor kept_features = dropout1_.forward(features(batch), batch.draw);
        const Tensor kept_hidden = dropout2_.forward(hidden_.forward(kept_features), batch.draw);
        const Tensor logits = classes_.forward(kept_hidden);
        device_->softmax_cross_entropy(logits, logits.columns(), batch.target, scale, metrics,
                                       classes_.gradient(rows));

        classes_.backward(kept_hidden, dropout2_.gradient(rows));
        dropout2_.backward(batch.draw, hidden_.gradient(rows));
        hidden_.backward(kept_features, dropout1_.gradient(rows));
        dropout1_.backward(batch.draw, pool_.gradient(rows));
        pool_.backward(second_.gradient(rows));
        second_.backward(first_.output(rows), first_.gradient(rows));
        first_.backward(batch.x, {});
    }

 private:
    ConvolutionLayer first_, second_;
    MaxPoolLayer pool_;
    DropoutLayer dropout1_;
    LinearLayer hidden_;
    DropoutLayer dropout2_;
    LinearLayer classes_;

    Tensor features(const Batch& batch) { return pool_.forward(second_.forward(first_.forward(batch.x))); }
};

}  // namespace

std::unique_ptr<Model> make_cnn(const ModelShape&) {
    return std::make_unique<Cnn>();
}

}  // namespace dp::trainer
