// SPDX-License-Identifier: Apache-2.0
//
// What a device can do. Models are written once against these operations; devices/cpu/ and devices/cuda/
// implement them, and tests/unit/trainer/device_test.cpp compares every one with a float64 reference.
//
// Matrices are row-major: a row is a sample. Operations are queued in order. A failure (out of memory, a CUDA
// error) is kept, and every later operation does nothing, as after one of CUDA's sticky errors, so that
// models stay readable. status() tells. One thread uses a device.
//
// Types. What flows through a model is f32 or bf16, the same for all such tensors of one call: inputs,
// outputs and their gradients (x, y, dx, dy, qkv, d_qkv, logits, predictions and theirs), the weights and
// biases of linear layers, convolutions and add_channels(), the tables of embed(). The rest is f32 unless an
// operation says otherwise: gradients of parameters, all of the norms' and optimizers' own, targets. Numbers
// are read to f32, computed and added up in f32 or wider, and rounded once, when they are written.
// Exceptions: a library may round a bf16 convolution before its bias is added, and the gradient of its
// weights; weights of attention are rounded for matrix units; a device that does linear_add(), linear_gelu()
// or linear_gelu_backward_input() in two operations rounds in between, and one that does the latter two in
// one may take a tanh that is as good as bf16.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/base/partition.hpp"
#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/devices/clipping.hpp"
#include "trainer/devices/download.hpp"
#include "trainer/devices/dropout.hpp"
#include "trainer/devices/memory_account.hpp"
#include "trainer/devices/timestamps.hpp"
#include "trainer/devices/tuned_choices.hpp"

namespace dp::trainer {

enum class Activation { none, relu };

// Images: a row holds channels x height x width numbers, channel by channel, line by line.
struct ImageShape {
    std::int64_t channels, height, width;

    std::int64_t numbers() const { return channels * height * width; }
    auto operator<=>(const ImageShape&) const = default;
};

// A two-dimensional cross-correlation, as PyTorch's nn.Conv2d: a square kernel, zeros around the image.
struct Convolution {
    ImageShape x;
    std::int64_t outputs;  // channels of y
    std::int64_t kernel, padding;
    std::int64_t stride = 1;

    ImageShape y() const { return {outputs, side(x.height), side(x.width)}; }
    auto operator<=>(const Convolution&) const = default;

 private:
    std::int64_t side(std::int64_t of_x) const { return (of_x + 2 * padding - kernel) / stride + 1; }
};

// Batch norm over the numbers of each channel (Ioffe and Szegedy 2015), with ReLU after it or without.
struct BatchNorm {
    ImageShape x;
    bool relu = false;
};
// As PyTorch has them: added to variances, and the part of a batch in the running statistics.
inline constexpr float kNormEpsilon = 1e-5f, kNormMomentum = 0.1f;

// Causal multi-head self-attention: a token attends to itself and to the tokens before it in its sequence.
struct Attention {
    std::int64_t sequence;  // tokens of a sequence; a tensor's rows are the tokens of whole sequences
    std::int64_t heads;
    Dropout dropout = {};  // of the weights (attention_dropout.hpp); the tensor whose rows it counts is y
    // Where ranks divide the heads: the number of the first one here, and how many there are in all. Dropout follows it.
    std::int64_t first_head = 0, all_heads = heads;
    // On the device, of each row (document_starts()): the place in the sequence of the first key that its query sees, ascending within
    // a sequence. Null: all see the first one.
    const std::int32_t* starts = nullptr;
};

// Whether a result takes the place of what was there, or is added to it.
enum class Write { set, add };

// What an operation does with a tensor: reads it, writes it, or both.
using In = const Tensor&;
using Out = const Tensor&;
using InOut = const Tensor&;

// Added to the numerator and the denominator of Dice's coefficient, so that an image without a mask has one.
inline constexpr double kDiceSmooth = 1;

// out = in * scale + shift, applied to each element that gather() reads.
struct Affine {
    float scale = 1;
    float shift = 0;

    bool operator==(const Affine&) const = default;
};

// What gather() makes of stored numbers: bytes are amounts, 16 bits are ids. `amount`: f32 or bf16.
constexpr Type gathered_type(Type stored, Type amount = Type::f32) {
    return stored == Type::u16 || stored == Type::i32 ? Type::i32 : amount;
}

// One step of SGD:
//   velocity = momentum * velocity + gradient + decay * parameter
//   parameter -= rate * velocity
struct SgdStep {
    float rate, momentum;
    float decay = 0;
    const Clipping* clipping = nullptr;  // on the device: of the gradients; null: they are taken as they are
};

// One step of Adam (Kingma and Ba, algorithm 1); the caller works out this step's bias corrections:
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g²
//   parameter = keep * parameter - rate * m / (sqrt(v) * root_scale + epsilon)
// `rate` includes 1 / (1 - beta1^t), root_scale is 1 / sqrt(1 - beta2^t), and keep is
// 1 - learning rate * weight decay (Loshchilov and Hutter's AdamW).
struct AdamStep {
    float rate, root_scale, beta1, beta2, epsilon;
    float keep = 1;
    const Clipping* clipping = nullptr;  // as SgdStep's
};

// Allocates memory that the ranks of a node share (parallel/node_memory.hpp): `bytes` zeros, or null.
struct SharedMemory {
    using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
    Allocate of_rank;        // a rank's own, which its neighbours read and write, too
    Allocate of_node;        // one for all of them
    std::int64_t ranks = 1;  // of the node
};

// Numbers of a row that softmax_part() notes: the largest logit, its place among all, Σ exp(logit - largest), and the label's logit or 0.
inline constexpr std::int64_t kSoftmaxNumbers = 4;

// Numbers of what square_sum() writes.
inline constexpr std::int64_t kSquareSums = 1 + 512;

// What autotuning and memory use depend on, as text to read and to compare.
struct DeviceFacts {
    std::string model;     // the kind and how much of it: "cpu, Intel(R) Xeon(R) Gold 6430, 8 threads"
    std::string software;  // libraries and drivers with their versions
};

class Device {
 public:
    virtual ~Device() = default;

    virtual std::string_view name() const = 0;    // "cpu" or "cuda"
    virtual std::string description() const = 0;  // for people: "cpu, 2 threads"
    virtual void synchronize() = 0;               // waits until everything queued is done
    // The device must outlive it. By default each timestamp waits.
    virtual std::unique_ptr<Timestamps> make_timestamps();
    virtual DeviceFacts facts() const = 0;

    // The first failure, if there was one.
    Result<void> status() const { return status_; }
    bool failed() const { return !status_; }

    // Adopts the choices that were fastest on a device with the same facts; before the first operation.
    virtual void adopt(TunedChoices choices) { choices_ = std::move(choices); }
    TunedChoices& choices() { return choices_; }

    // ---- memory
    // Bytes that this process may use for tensors and workspaces, including what memory() counts already, as
    // far as the device knows. A host's memory is divided among its ranks.
    virtual std::optional<std::int64_t> available_memory(std::int64_t ranks_of_host) const = 0;
    MemoryAccount& memory() { return memory_; }
    const MemoryAccount& memory() const { return memory_; }
    // Bytes that the device needs in any training besides tensors: workspaces of its libraries and kernels.
    virtual std::int64_t workspace_bytes() const { return 0; }
    // --deterministic: every later operation gives the same bits for the same inputs, in every run on this
    // kind of device, even where a faster way exists.
    void set_deterministic(bool deterministic) { deterministic_ = deterministic; }
    bool is_deterministic() const { return deterministic_; }
    // Whether the device computes in f32 only: operations on bf16 tensors then run on f32 copies, for which
    // reserve_copies() may allocate memory beforehand (Model::widest_operation() numbers).
    virtual bool copies_bf16() const { return false; }
    virtual void reserve_copies(std::int64_t /*numbers*/) {}
    virtual void upload(const void* from, Out to) = 0;  // tensor.bytes() of them
    virtual void download(In from, void* to) = 0;       // waits: `to` is filled when it returns
    // For tensors of up to so many bytes; the device must outlive it. By default copies are made at once.
    virtual std::unique_ptr<Download> make_download(std::size_t bytes);
    virtual void zero(Out tensor) = 0;

    // ---- data
    // out[r] = data[indices[r]], row by row; u8 and f32 become f32 or bf16 through `affine`, u16 and i32
    // become i32.
    virtual void gather(In data, In indices, Affine affine, Out out) = 0;

    // ---- linear layer: x [r,k], w [n,k], b [n], y [r,n]; b and db are empty tensors if there is no bias.
    // Rows of y and dy may be padded to more than n numbers, so that each row is aligned for matrix units;
    // the padding means nothing.
    virtual void linear(In x, In w, In b, Activation activation, Out y) = 0;  // y = act(x wᵀ + b)
    virtual void linear_backward_input(In dy, In w, Out dx) = 0;              // dx = dy w
    virtual void linear_backward_parameters(In dy, In x, Out dw, Out db,
                                            Write write = Write::set) = 0;  // dw = dyᵀ x, db = Σ rows dy
    // y = added + x wᵀ + b, with memory of its own for y.
    virtual void linear_add(In x, In w, In b, In added, Out y) {
        linear(x, w, b, Activation::none, y);
        add(added, y);
    }
    virtual void relu_backward(In y, In dy, Out dx) = 0;  // dx = y > 0 ? dy : 0; dx may be dy

    // The tanh approximation of GELU (Hendrycks and Gimpel 2016):
    // x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
    virtual void gelu(In x, Out y) = 0;
    virtual void gelu_backward(In x, In dy, Out dx) = 0;  // dx may be dy
    // up = x wᵀ + b, y = gelu(up): in one pass over memory where a device can.
    virtual void linear_gelu(In x, In w, In b, Out up, Out y) {
        linear(x, w, b, Activation::none, up);
        gelu(up, y);
    }
    // d_up = gelu'(up) (dy w): the gradients of a linear layer's input and of the GELU that made it.
    virtual void linear_gelu_backward_input(In dy, In w, In up, Out d_up) {
        linear_backward_input(dy, w, d_up);
        gelu_backward(up, d_up, d_up);
    }

    // ---- sequences: tokens i32 [sequences, t], vectors of a token [sequences * t, c]
    // y = table[token] + positions[place in the sequence]; table [vocabulary, c], positions [t or more, c]
    virtual void embed(In tokens, In table, In positions, Out y) = 0;
    // Adds, in the same order each time.
    virtual void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) = 0;
    // The same where ranks divide the table by its rows and add up what each makes (Shoeybi et al. 2019, section 3): `words` are the
    // tokens whose rows are here; of others y is 0, before the positions, which are empty on all ranks but one. Backward both gradients
    // are those of dy's tokens.
    virtual void embed_part(In /*tokens*/, In /*table*/, Shard /*words*/, In /*positions*/, Out /*y*/) {
        keep_failure(kNoParts);
    }
    virtual void embed_part_backward(In /*tokens*/, In /*dy*/, Shard /*words*/, InOut /*d_table*/,
                                     InOut /*d_positions*/) {
        keep_failure(kNoParts);
    }
    // y = (x - mean) / √(variance + kNormEpsilon) w + b, row by row (Ba et al. 2016); saved [r, 2]: mean and
    // the factor
    virtual void layer_norm(In x, In w, In b, Out y, Out saved) = 0;
    // Adds to dx, sets dw and db.
    virtual void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) = 0;
    // starts, i32 [sequences * t]: of each token the place in its sequence of the last `end` until then, which begins a document;
    // 0 before the first of them.
    virtual void document_starts(In tokens, std::int32_t end, Out starts) = 0;
    // qkv [r, 3 c]: queries, keys and values, each head by head.
    // y [r, c] = Σ softmax(q k / √(c / heads)) v; dropout drops some of softmax's weights.
    // sums [r * heads]: log-sum-exp of the scores, which the backward pass needs.
    virtual void attention(const Attention& a, In qkv, Out y, Out sums) = 0;
    virtual void attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) = 0;

    // ---- images: x [r, c.x], w [outputs, channels, kernel, kernel], b [outputs] or empty, y [r, c.y()]
    // y = act(x * w + b)
    virtual void convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) = 0;
    virtual void convolve_backward_input(const Convolution& c, In dy, In w, Out dx) = 0;
    virtual void convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) = 0;
    // Bytes that a convolution of `rows` samples of this type needs besides its tensors, in any direction.
    // One memory serves all convolutions, so the largest counts.
    virtual std::int64_t convolution_scratch(const Convolution& c, std::int64_t rows, Type type) const = 0;
    virtual void reserve_convolution_scratch(std::int64_t /*bytes*/) {}
    // A transposed convolution is convolve_backward_input() with its own input as dy; these two are its bias.
    virtual void add_channels(ImageShape shape, In b, InOut y) = 0;  // y[channel] += b
    virtual void sum_channels(ImageShape shape, In dy, Out db) = 0;  // db = Σ dy[channel]
    // Batch norm has two halves in each direction, so that a batch may be spread over ranks: between the
    // halves, the ranks all-reduce the sums of their rows, f64 [2, channels]. `rows`: of the whole batch.
    // w, b [channels]; running [2, channels]: means, variances; saved [2, channels]: means, factors.
    virtual void batch_norm_sums(const BatchNorm& norm, In x, Out sums) = 0;  // Σ x, Σ x²
    // Updates the running statistics, unless the batch's are NaN or infinite; y may not be x.
    virtual void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b,
                            InOut running, Out saved, Out y) = 0;
    virtual void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) = 0;
    // dx = dy, or zero where ReLU held y at zero; dx may be dy. The sums are Σ dx and Σ dx x̂; db and dw are
    // the same sums over this rank's rows only.
    virtual void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx,
                                          Out sums, Out dw, Out db) = 0;
    // dx becomes the gradient of x.
    virtual void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows,
                                     InOut dx) = 0;
    // The maximum of each 2 x 2 block; an odd last line or column is left out. `picked`, u8, shaped like y:
    // which of the four it was, the first one among equals.
    virtual void max_pool(ImageShape x_shape, In x, Out y, Out picked) = 0;
    virtual void max_pool_backward(ImageShape x_shape, In dy, In picked, Out dx) = 0;

    // ---- dropout (dropout.hpp): y = x / (1 - rate) where a number is kept, else 0; also its backward pass
    virtual void dropout(In x, Dropout dropout, Out y) = 0;

    // ---- losses: metrics is f64 [2]; [0] += Σ rows loss, [1] += right predictions. The gradient output is
    // `scale` times the gradient of Σ rows loss. It may be the prediction's tensor, or empty if not wanted.
    // Reads the first `classes` numbers of each row of the logits, and writes those of d_logits.
    virtual void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                                       Out d_logits) = 0;
    // The same where ranks have parts of each row of logits, those of `words`: first each notes what the others need of its part, in
    // f32 [rows, kSoftmaxNumbers]; then each goes on with the notes of all, f32 [ranks, rows, kSoftmaxNumbers] in their order. So all
    // get the same metrics.
    virtual void softmax_part(In /*logits*/, Shard /*words*/, In /*labels*/, Out /*notes*/) {
        keep_failure(kNoParts);
    }
    virtual void softmax_cross_entropy_of_parts(In /*logits*/, Shard /*words*/, In /*labels*/, In /*notes*/,
                                                float /*scale*/, InOut /*metrics*/, Out /*d_logits*/) {
        keep_failure(kNoParts);
    }
    // loss of a row = mean of its squared differences
    virtual void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) = 0;
    // loss of a row = 1 - (2 Σ p t + kDiceSmooth) / (Σ p + Σ t + kDiceSmooth), p = 1 / (1 + e^-logit),
    // targets 0 or 1 (Milletari et al. 2016); counts as right the fraction of pixels on the right side of 1/2
    virtual void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) = 0;

    // ---- moving
    // Copies columns of each row into columns of another tensor with as many rows.
    virtual void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                              std::int64_t columns, Write write) = 0;
    // Element by element: f32 to bf16, bf16 to f32, or a plain copy if both have the same type.
    virtual void convert(In from, Out to) = 0;

    // ---- gradients
    virtual void add(In x, InOut y) = 0;            // y += x
    virtual void scale(InOut x, float factor) = 0;  // x *= factor
    // sums, f64 [kSquareSums]: the first is Σ x², added in the same order each time; the rest is scratch.
    virtual void square_sum(In x, Out sums) = 0;
    // The clipping of gradients whose sums of squares are the first numbers of the rows of `sums`, f64, added in their order;
    // `clipping`, f64 [kClipping], gets it. `largest`: as clipping_of() has it.
    virtual void clip(In sums, double largest, Out clipping) = 0;

    // ---- optimizers, in place, element by element
    virtual void sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) = 0;
    // `copy`: bf16, of the new parameters; or empty.
    virtual void adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step, Out copy) = 0;

    // ---- conveniences
    // Zeros, at a multiple of 256 bytes; an empty tensor where there is no memory: see status().
    Tensor make(Type type, Shape shape) {
        return make_in([this](std::size_t bytes) { return allocate(bytes); }, 1, type, std::move(shape));
    }

    // As make(), for gradients and the like, which ranks add up: in memory that suits their communicator.
    // Every rank makes the same ones in the same order.
    Tensor make_to_sum(Type type, Shape shape) {
        if (!shared_.of_rank) return make(type, std::move(shape));
        return make_in(shared_.of_rank, 1, type, std::move(shape));
    }

    // As make(), for what is equal on all ranks: parameters and the optimizer's state. If the ranks of a node
    // share memory, they have it once: each writes the same numbers to it, or writes its part and then waits
    // for the others (Communicator::node_share()). Every rank makes the same ones in the same order, and
    // counts its share of the memory.
    Tensor make_of_node(Type type, Shape shape) {
        if (!shared_.of_node) return make(type, std::move(shape));
        return make_in(shared_.of_node, shared_.ranks, type, std::move(shape));
    }
    void set_shared_memory(SharedMemory memory) { shared_ = std::move(memory); }

    template <typename T>
    Tensor copy_of(Type type, Shape shape, std::span<const T> values) {
        Tensor tensor = make(type, std::move(shape));
        upload(values.data(), tensor);
        return tensor;
    }

    template <typename T>
    std::vector<T> values_of(In tensor) {
        std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
        download(tensor, values.data());
        return values;
    }

 protected:
    // Zeroed, at a multiple of 256 bytes; null where there is no memory, or after a failure.
    virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    // Only the first failure is kept.
    void keep_failure(const std::string& what) {
        if (status_) status_ = fail(Fault::device, std::string(name()) + ": " + what);
    }
    void keep_out_of_memory(std::size_t bytes) {
        if (failed()) return;
        memory_.note_exhausted();
        keep_failure("out of memory allocating " + std::to_string(bytes >> 20) +
                     " MiB; give a smaller --batch-size");
    }

 private:
    static constexpr const char* kNoParts = "no model that ranks divide here; give --device=cpu";

    Result<void> status_;
    MemoryAccount memory_;
    bool deterministic_ = false;
    SharedMemory shared_;
    TunedChoices choices_;

    // `ranks` have it once, and each counts its share.
    Tensor make_in(const SharedMemory::Allocate& memory_for, std::int64_t ranks, Type type, Shape shape) {
        const auto bytes = static_cast<std::size_t>(elements_of(shape)) * size_of(type);
        const auto counted = (static_cast<std::int64_t>(bytes) + ranks - 1) / ranks;
        auto memory = memory_.may_take(counted) ? memory_for(bytes) : nullptr;
        if (memory == nullptr) {
            keep_out_of_memory(bytes);
            return Tensor({}, type, std::move(shape));
        }
        memory_.take(counted);
        auto* begin = memory.get();
        std::shared_ptr<void> owner(
            begin, [this, counted, memory = std::move(memory)](void*) { memory_.give_back(counted); });
        return Tensor(std::move(owner), type, std::move(shape));
    }
};

inline std::unique_ptr<Timestamps> Device::make_timestamps() {
    class OfTheHost final : public Timestamps {
     public:
        explicit OfTheHost(Device& device) : device_(device) {}
        void take() override {
            device_.synchronize();
            moments_.push_back(std::chrono::steady_clock::now());
        }
        std::vector<double> between() override {
            std::vector<double> seconds;
            for (std::size_t i = 1; i < moments_.size(); ++i)
                seconds.push_back(std::chrono::duration<double>(moments_[i] - moments_[i - 1]).count());
            return seconds;
        }

     private:
        Device& device_;
        std::vector<std::chrono::steady_clock::time_point> moments_;
    };
    return std::make_unique<OfTheHost>(*this);
}

inline std::unique_ptr<Download> Device::make_download(std::size_t bytes) {
    class AtOnce final : public Download {
     public:
        AtOnce(Device& device, std::size_t bytes) : device_(device), numbers_(bytes) {}
        void start(In from) override {
            device_.download(from, numbers_.data());
            bytes_ = from.bytes();
        }
        std::span<const std::byte> wait() override { return std::span(numbers_).first(bytes_); }

     private:
        Device& device_;
        std::vector<std::byte> numbers_;
        std::size_t bytes_ = 0;
    };
    return std::make_unique<AtOnce>(*this, bytes);
}

}  // namespace dp::trainer
