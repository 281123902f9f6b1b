// SPDX-License-Identifier: Apache-2.0
//
// What the training loop asks of a model. A model is one file (cnn.cpp, ffn.cpp, linear.cpp), written against
// devices/device.hpp; registry.cpp lists them.
#ifndef TRAINER_MODELS_MODEL_HPP
#define TRAINER_MODELS_MODEL_HPP

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "trainer/devices/device.hpp"
#include "trainer/parameters.hpp"

namespace dp::trainer {

// What a batch's random numbers are drawn from: the same on all ranks but for the place of their rows.
struct BatchDraw {
    std::uint64_t key = 0;       // of the step
    std::int64_t first_row = 0;  // of this rank's rows in the global batch
};

struct Batch {
    Tensor x;       // f32 [rows, features]
    Tensor target;  // i32 [rows, 1] classes, or f32 [rows, values]
    BatchDraw draw = {};
};

class Model {
 public:
    virtual ~Model() = default;
    Model() = default;
    Model(const Model&) = delete;  // layers point into the parameters
    Model& operator=(const Model&) = delete;

    ParameterSet& parameters() { return parameters_; }
    const ParameterSet& parameters() const { return parameters_; }

    // Allocates everything for batches of up to `rows` samples.
    virtual void place(Device& device, std::uint64_t seed, std::int64_t rows) = 0;
    // Adds the batch's loss and right predictions to metrics (devices/device.hpp).
    virtual void evaluate(const Batch& batch, const Tensor& metrics) = 0;
    // The same, and sets the gradients to `scale` times those of the sum of the samples' losses.
    virtual void forward_backward(const Batch& batch, float scale, const Tensor& metrics) = 0;

    virtual double forward_flops_per_sample() const = 0;
    virtual std::int64_t activations_per_sample() const = 0;  // f32 numbers held between forward and backward

 protected:
    ParameterSet parameters_;
};

enum class Optimization { sgd, adam };
enum class DataSet { fashion_mnist, line };

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
    std::unique_ptr<Model> (*make)();
};

std::unique_ptr<Model> make_cnn();
std::unique_ptr<Model> make_ffn();
std::unique_ptr<Model> make_linear();

inline constexpr std::array<ModelInfo, 3> kModels{{
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
    {"linear",
     "three linear layers of 1000 that learn y = 0.7 x + 0.3",
     DataSet::line,
     false,
     {50, 20, 1e-3, Optimization::adam},
     make_linear},
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
