// SPDX-License-Identifier: Apache-2.0
//
// What the training loop asks of a model. A model is one file (cnn.cpp, ffn.cpp, ...), written against
// devices/device.hpp; kModels lists them.
#ifndef TRAINER_MODELS_MODEL_HPP
#define TRAINER_MODELS_MODEL_HPP

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// What a batch's random numbers are drawn from: the same on all ranks but for the place of their rows.
struct BatchDraw {
    std::uint64_t key = 0;       // of the step
    std::int64_t first_row = 0;  // of this rank's rows in the global batch
};

struct Batch {
    Tensor x;       // f32 or bf16 [rows, features], or i32 [rows, tokens]
    Tensor target;  // i32 [rows, 1] classes, f32 [rows, values], or i32 [rows, tokens]
    BatchDraw draw = {};
};

// What layers that look at the whole batch of a step (batch norm) ask of the ranks that have its other rows.
struct WholeBatch {
    std::int64_t ranks = 1;  // with as many rows each
    // In place, of an f64 tensor of the device, over all of them: they call it in the same order. Empty where
    // there is one.
    std::function<void(const Tensor&)> add_up;

    std::int64_t rows(const Tensor& mine) const { return ranks * mine.rows(); }
};

class Model {
 public:
    virtual ~Model() = default;
    Model() = default;
    Model(const Model&) = delete;  // layers point into the parameters
    Model& operator=(const Model&) = delete;

    ParameterSet& parameters() { return parameters_; }
    const ParameterSet& parameters() const { return parameters_; }

    virtual bool looks_at_whole_batch() const { return false; }
    // Until then a rank's batch is the whole one.
    void set_whole_batch(WholeBatch whole) { whole_batch_ = std::move(whole); }

    // Allocates everything for batches of up to `rows` samples. `type`: of the numbers that flow through it
    // and of a batch's features that are no tokens; f32 or bf16.
    virtual void place(Device& device, std::uint64_t seed, std::int64_t rows, Type type = Type::f32) = 0;
    // Adds the batch's loss and right predictions to metrics (devices/device.hpp).
    virtual void evaluate(const Batch& batch, const Tensor& metrics) = 0;
    // The same, and sets the gradients to `scale` times those of the sum of the samples' losses.
    virtual void forward_backward(const Batch& batch, float scale, const Tensor& metrics) = 0;

    // What it was told of its shape (ModelShape), under the names of the options: two models of one name and
    // one shape are the same function of the same parameters.
    virtual std::map<std::string, std::int64_t> shape() const { return {}; }
    // Over how many targets a sample's loss is the mean: metrics add up those of all of them.
    virtual std::int64_t targets_per_sample() const { return 1; }
    virtual double forward_flops_per_sample() const = 0;
    virtual std::int64_t activations_per_sample() const = 0;  // numbers held between forward and backward
    // Of these, numbers of 4 bytes whatever the type of the others: tokens, statistics, places.
    virtual std::int64_t statistics_per_sample() const { return 0; }
    // Numbers that a batch of so many samples takes besides, where that does not grow with each of them.
    virtual std::int64_t scratch(std::int64_t /*rows*/) const { return 0; }
    // Numbers that the widest operation on a batch of so many samples reads and writes, of those that flow
    // through the model: a device that computes in f32 alone has copies of them where they are bf16.
    virtual std::int64_t widest_operation(std::int64_t rows) const = 0;

 protected:
    ParameterSet parameters_;
    WholeBatch whole_batch_;
};

enum class Optimization { sgd, adam };

constexpr std::string_view name_of(Optimization kind) {
    return kind == Optimization::adam ? "adam" : "sgd";
}

// gpt's shape. The first four and the learned positions are GPT-2's (Radford et al. 2019).
struct GptShape {
    std::int64_t layers = 6, hidden = 384, heads = 6;
    std::int64_t sequence = 256;
    std::int64_t vocabulary = 50257;
    bool recompute = false;  // a layer's activations in the backward pass, instead of keeping all layers'
    float initial_deviation = 0.02f;  // of the weights
    float hidden_dropout = 0;         // in training, of the embedding and of what is added to the stream
    float attention_dropout = 0;      // in training, of attention's weights
};

// What a model may be told before it is made; models without such a choice look at none of it.
struct ModelShape {
    std::int64_t image_size = 256;  // unet2d: of a side
    std::int64_t features = 32;     // unet2d: channels of the first level
    GptShape gpt;
};

// What a model is like before any option is given. `defaults` are what the trainer runs with no argument:
// chosen so that they converge for any world of 1 to 16 ranks without scaling anything by its size.
struct ModelInfo {
    std::string_view name;
    std::string_view summary;
    DataSet data;
    bool classifies;  // then it has a test accuracy
    struct Defaults {
        std::int64_t epochs;
        std::int64_t batch;  // a rank's
        double rate;
        Optimization optimizer;
    } defaults;
    std::unique_ptr<Model> (*make)(const ModelShape& shape);
};

std::unique_ptr<Model> make_cnn(const ModelShape& shape);
std::unique_ptr<Model> make_ffn(const ModelShape& shape);
std::unique_ptr<Model> make_gpt(const ModelShape& shape);
std::unique_ptr<Model> make_linear(const ModelShape& shape);
std::unique_ptr<Model> make_unet2d(const ModelShape& shape);

inline constexpr std::array<ModelInfo, 5> kModels{{
    {"cnn",
     "convolutional network on 28x28 images",
     DataSet::fashion_mnist,
     true,
     {5, 16, 1e-3, Optimization::adam},
     make_cnn},
    {"ffn",
     "feed-forward network and logistic regression on 28x28 images",
     DataSet::fashion_mnist,
     true,
     {5, 64, 1e-3, Optimization::adam},
     make_ffn},
    {"gpt", "GPT-2 on tokens of text", DataSet::tokens, false, {1, 8, 3e-4, Optimization::adam}, make_gpt},
    {"linear",
     "three linear layers of 1000 that learn y = 0.7 x + 0.3",
     DataSet::line,
     false,
     {50, 20, 1e-3, Optimization::adam},
     make_linear},
    {"unet2d",
     "U-Net that finds the pixels of things in images",
     DataSet::segmentation,
     true,
     {5, 4, 1e-3, Optimization::adam},
     make_unet2d},
}};

// Null where there is no model of that name.
inline const ModelInfo* find_model(std::string_view name) {
    for (const auto& info : kModels) {
        if (info.name == name) return &info;
    }
    return nullptr;
}

}  // namespace dp::trainer

#endif
