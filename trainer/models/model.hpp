// SPDX-License-Identifier: Apache-2.0
//
// The interface between the training loop and a model. A model is one file (cnn.cpp, ffn.cpp, ...), written
// against devices/device.hpp; kModels lists them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// The seed of a batch's random numbers: the same on all ranks except for the place of their rows.
struct BatchDraw {
    std::uint64_t key = 0;       // of the step
    std::int64_t first_row = 0;  // of this rank's rows in the global batch
};

struct Batch {
    Tensor x;       // f32 or bf16 [rows, features], or i32 [rows, tokens]
    Tensor target;  // i32 [rows, 1] classes, f32 [rows, values], or i32 [rows, tokens]
    BatchDraw draw = {};
};

// What layers with statistics of the whole batch (batch norm) need from the ranks that have its other rows.
struct SyncBatchNorm {
    std::int64_t ranks = 1;  // with as many rows each
    // Sums an f64 tensor over these ranks, in place; all call in the same order. Empty for a single rank.
    std::function<void(const Tensor&)> add_up;

    std::int64_t rows(const Tensor& mine) const { return ranks * mine.rows(); }
};

// The ranks that have the other parts of this model's layers, as the model sees them.
struct TensorRanks {
    // Begins to sum a tensor over these ranks, in place, once the device has what it queued so far. All call in the same order.
    // Empty where the model is whole.
    std::function<void(const Tensor&)> start_sum;
    // Until the sums that were begun are there, for what the device does next. A sum that failed stops nothing here: who gave these
    // functions knows of it.
    std::function<void()> wait;
    // Of the rows of a tensor, in place: each rank has its part and gets all (Communicator::all_gather); each has all of them in part,
    // and gets its part of the sums (reduce_scatter). After the sums that were begun.
    std::function<void(const Tensor&)> gather, scatter_sums;
};

// The stages before and after this one, as the model sees them. A message that failed stops nothing here, as with TensorRanks.
struct StageNeighbours {
    enum class Side { before, after };
    // Begins to send a tensor once the device has what it queued so far; nobody writes to it before wait_send().
    std::function<void(const Tensor&, Side to)> start_send;
    std::function<void(const Tensor&)> wait_send;  // returns at once if nothing of it is being sent
    std::function<void(const Tensor&, Side from)> receive;
};

// What a model that ranks divide into stages of a pipeline has beyond a Model: the two halves of forward_backward(), of each chunk of
// its layers. What is between its forward and its backward pass is in a slot of its own, from 0 to Layout::slots. A stage takes what
// comes in from its neighbours, around a ring, and sends them what goes out.
class Stage {
 public:
    virtual ~Stage() = default;
    virtual void forward(std::int64_t slot, std::int64_t chunk, const Batch& batch) = 0;
    // Of the same batch and chunk. Where it ends also adds its loss and correct predictions to `metrics`. Sets the gradients of the
    // chunk's parameters.
    virtual void backward(std::int64_t slot, const Batch& batch, float scale, const Tensor& metrics) = 0;
    // Where in the memory of the gradients those of that chunk's parameters are, ascending.
    virtual std::vector<Shard> gradients_of(std::int64_t chunk) const = 0;
    // A parameter that first and last stage both have, and both make a part of the gradient of; null on other stages.
    virtual const Parameter* shared() const = 0;
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
    // Without it, a rank's batch is the whole batch.
    void set_whole_batch(SyncBatchNorm whole) { whole_batch_ = std::move(whole); }

    // Where the model is not whole, before it is used.
    void set_tensor_ranks(TensorRanks ranks) { tensor_ranks_ = std::move(ranks); }

    // Where other stages have other layers, before it is used.
    void set_neighbours(StageNeighbours neighbours) { neighbours_ = std::move(neighbours); }
    // Null of a model that is no stage of a pipeline.
    virtual Stage* stage() { return nullptr; }
    bool is_stage() const { return const_cast<Model*>(this)->stage() != nullptr; }

    // Allocates everything for batches of up to `rows` samples. `type`, f32 or bf16: the type of activations,
    // and of a batch's features other than tokens. `seed` is ParameterSet::place()'s.
    virtual void place(Device& device, std::optional<std::uint64_t> seed, std::int64_t rows,
                       Type type = Type::f32) = 0;
    // Adds the batch's loss and correct predictions to `metrics` (devices/device.hpp).
    virtual void evaluate(const Batch& batch, const Tensor& metrics) = 0;
    // The same, and sets the gradients to `scale` times those of the sum of the samples' losses.
    virtual void forward_backward(const Batch& batch, float scale, const Tensor& metrics) = 0;
    // The logits of the pixels of the batch of so many rows that was evaluated last; empty of a model that finds none.
    virtual Tensor mask_logits(std::int64_t /*rows*/) const { return {}; }

    // Its shape (ModelShape), keyed by the options' names: two models with one name and one shape are the
    // same function of the same parameters.
    virtual std::map<std::string, std::int64_t> shape() const { return {}; }
    // The number of targets over which a sample's loss is the mean; metrics add up all of them.
    virtual std::int64_t targets_per_sample() const { return 1; }
    virtual double forward_flops_per_sample() const = 0;
    virtual std::int64_t activations_per_sample() const = 0;  // numbers held between forward and backward
    // The part of these that takes 4 bytes each whatever the type: tokens, statistics, indices.
    virtual std::int64_t statistics_per_sample() const { return 0; }
    // Additional numbers for a batch of that many samples that do not grow with each sample.
    virtual std::int64_t scratch(std::int64_t /*rows*/) const { return 0; }
    // Numbers of the activation type that the widest operation on a batch reads and writes: a device that
    // computes in f32 only keeps f32 copies of bf16 ones.
    virtual std::int64_t widest_operation(std::int64_t rows) const = 0;
    virtual std::vector<Convolution> convolutions() const { return {}; }
    // Bytes that the device needs besides, for the one of them that needs most. `type`: of the activations.
    std::int64_t convolution_scratch(const Device& device, std::int64_t rows, Type type = Type::f32) const {
        std::int64_t bytes = 0;
        for (const Convolution& one : convolutions())
            bytes = std::max(bytes, device.convolution_scratch(one, rows, type));
        return bytes;
    }

 protected:
    ParameterSet parameters_;
    SyncBatchNorm whole_batch_;
    TensorRanks tensor_ranks_;
    StageNeighbours neighbours_;
};

enum class Optimization { sgd, adam };

constexpr std::string_view name_of(Optimization kind) {
    return kind == Optimization::adam ? "adam" : "sgd";
}

// gpt's shape. The first four and the learned position embedding are GPT-2's (Radford et al. 2019).
struct GptShape {
    std::int64_t layers = 6, hidden = 384, heads = 6;
    std::int64_t sequence = 256;
    std::int64_t vocabulary = 50257;
    bool recompute = false;  // a layer's activations in the backward pass, instead of keeping all layers'
    float initial_deviation = 0.02f;  // of the weights
    float hidden_dropout = 0;         // in training, of the embedding and of what is added to the stream
    float attention_dropout = 0;      // in training, of attention's weights
    Layout layout = {};               // which part of it a rank has; no part of the shape
    // The token that begins a document, whose tokens do not attend to earlier ones; -1: attention crosses documents.
    std::int64_t document_begins = -1;
    // Of the adapters of attention's first linear layer, all that is then learnt (low_rank.hpp); 0: there are none.
    std::int64_t lora_rank = 0, lora_alpha = 0;
    std::vector<std::string> freeze = {};  // ModelShape's: what it saves decides which layers a stage has
};

// A model's options; models ignore those that they do not have.
struct ModelShape {
    std::int64_t image_size = 256;  // unet2d: of a side
    std::int64_t features = 32;     // unet2d: channels of the first level
    GptShape gpt;
    std::vector<std::string> freeze = {};  // of any model (freezing.hpp); no part of the shape
};

// A model's defaults. `defaults` are what the trainer runs without options: they converge for any world of 1
// to 16 ranks without scaling with its size.
struct ModelInfo {
    std::string_view name;
    std::string_view summary;
    DataSet data;
    bool classifies;  // then it has a test accuracy
    struct Defaults {
        std::int64_t epochs;
        std::int64_t batch;  // a rank's
        double rate;
        Optimization optimizer = Optimization::adam;
    } defaults;
    std::unique_ptr<Model> (*make)(const ModelShape& shape);
};

std::unique_ptr<Model> make_cnn(const ModelShape& shape);
std::unique_ptr<Model> make_ffn(const ModelShape& shape);
std::unique_ptr<Model> make_gpt(const ModelShape& shape);
std::unique_ptr<Model> make_linear(const ModelShape& shape);
std::unique_ptr<Model> make_unet2d(const ModelShape& shape);

inline constexpr std::array<ModelInfo, 5> kModels{{
    {"cnn", "convolutional network on 28x28 images", DataSet::fashion_mnist, true, {5, 16, 1e-3}, make_cnn},
    {"ffn",
     "feed-forward network and logistic regression on 28x28 images",
     DataSet::fashion_mnist,
     true,
     {5, 64, 1e-3},
     make_ffn},
    {"gpt", "GPT-2 on tokens of text", DataSet::tokens, false, {1, 8, 3e-4}, make_gpt},
    {"linear",
     "three linear layers of 1000 that learn y = 0.7 x + 0.3",
     DataSet::linear_regression,
     false,
     {50, 20, 1e-3},
     make_linear},
    {"unet2d",
     "U-Net that finds the pixels of things in images",
     DataSet::segmentation,
     true,
     {5, 4, 1e-3},
     make_unet2d},
}};

// The row of a table with this name; null if it has none.
template <typename Table>
constexpr const typename Table::value_type* find_named(const Table& table, std::string_view name) {
    const auto row = std::ranges::find(table, name, &Table::value_type::name);
    return row == table.end() ? nullptr : &*row;
}
inline const ModelInfo* find_model(std::string_view name) {
    return find_named(kModels, name);
}

}  // namespace dp::trainer
