// SPDX-License-Identifier: Apache-2.0
//
// A model's parameters and their gradients. All values are in one piece of memory and all gradients in
// another, so that one all-reduce averages them, one call of the optimizer updates them and one pass hashes
// them. If the ranks of a node share memory, they have one copy of the values. The values are f32 also if a
// model computes in bf16 (master weights, Micikevicius et al. 2018), because a step is often too small for
// bf16's 8 bits; the model then uses a bf16 copy of all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/parameter_part.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/low_rank.hpp"

namespace dp::trainer {

// The distribution of a parameter's initial values.
struct Initial {
    enum class Kind { uniform, normal, constant } kind;
    float size;  // uniform: in [-size, size); normal: the standard deviation; constant: the value

    static Initial uniform(float bound) { return {Kind::uniform, bound}; }
    // As in PyTorch's linear layers and convolutions: `inputs` of each number of the result.
    static Initial by_inputs(std::int64_t inputs) {
        return uniform(1 / std::sqrt(static_cast<float>(inputs)));
    }
    static Initial normal(float deviation) { return {Kind::normal, deviation}; }
    static Initial constant(float value) { return {Kind::constant, value}; }
};

// Rows that a parameter's memory has behind its own: zeros, which stay zero if nothing but zeros is written to their gradients.
struct SpareRows {
    std::int64_t multiple = 1;  // the memory has so many rows, or twice as many, ...
    std::int64_t least =
        0;  // and of a part at least these: where ranks have unequal parts, all take the same room

    std::int64_t rows_of(std::int64_t rows, std::int64_t at_least = 0) const {
        return std::max((rows + multiple - 1) / multiple * multiple, at_least);
    }
};

struct Parameter {
    std::string name;
    ParameterPart part;
    Shape shape;  // of what is here
    Initial initial;
    std::size_t number;  // in the order of declaration
    SpareRows spare;
    bool is_frozen = false;   // keeps its values (ParameterSet::freeze)
    bool is_adapter = false;  // one of the two of `adapter`, of another
    const LowRank* adapter = nullptr;
    // Its gradient is that of some tokens: the ranks that have the others, and all of it, too, have the rest (copied_gradients.hpp).
    bool is_of_some_tokens = false;
    // Its gradient is final when that of the one declared before it is, and not sooner.
    bool is_final_with_earlier = false;
    std::int64_t first = 0;  // of its elements in the memory of all; set by ParameterSet::place, as the rest
    std::int64_t whole_first = 0;  // the same where a rank has the whole model
    Tensor value = {};             // f32: what is learnt
    Tensor compute_copy = {};      // what operations take: `value`, or its copy in bf16
    Tensor gradient = {};          // f32; of a frozen one memory to write to that nobody reads

    // Whether anybody reads its gradient.
    bool wants_gradient() const { return !is_frozen || (adapter != nullptr && adapter->learns()); }
    // One of these three tensors with the spare rows.
    Tensor with_spare_rows(const Tensor& tensor) const {
        return tensor.first_rows(spare.rows_of(shape.at(0), spare.least));
    }
};

// State that a model keeps between steps but does not learn by gradients: batch norm's running statistics.
struct Buffer {
    std::string name;
    Shape shape;
    std::vector<float> initial;
    Tensor value;  // f32
};

class ParameterSet {
 public:
    // Declares a parameter or buffer; the reference stays valid. Nothing is allocated before place().
    Parameter& add(std::string name, ParameterPart part, Initial initial, SpareRows spare = {});
    Parameter& add(std::string name, Shape shape, Initial initial, SpareRows spare = {}) {
        return add(std::move(name), whole_part(std::move(shape)), initial, spare);
    }
    Buffer& add_buffer(std::string name, Shape shape, std::vector<float> initial);
    // Freezes the weight, a matrix that is whole and was added last or last but one, and adds what is learnt in its place (low_rank.hpp):
    // NAME.lora_A.weight and NAME.lora_B.weight of NAME.weight, as PEFT names them.
    void adapt(Parameter& weight, std::int64_t rank, std::int64_t alpha);
    // No step changes these: they have no sum of gradients and no state of the optimizer. Before place().
    void freeze(const std::function<bool(const Parameter&)>& is_meant);

    // Allocates on the device and draws the initial values from the seed: every rank draws the same, so no
    // broadcast is needed (and the hash at the end of a run would tell); a part has the numbers that the whole would have. Without a seed they are zeros until the caller
    // sets them, and refreshes the compute copy. `compute_type`: the type that the model computes in, f32 or bf16.
    void place(Device& device, std::optional<std::uint64_t> seed, Type compute_type = Type::f32);

    // Updates the compute copy after a change of the values. Queued, as an operation is.
    void refresh_compute_copy(Device& device) const {
        refresh_compute_copy(device, {0, values_.elements()});
        merge_adapters(device);
    }
    // The same of a part, except where adapters are merged into it: that takes all parts.
    void refresh_compute_copy(Device& device, const Shard& part) const;
    void merge_adapters(Device& device) const;

    // Where in gradients() those of these parameters are: as few ranges as possible, ascending.
    static std::vector<Shard> gradients_of(std::vector<const Parameter*> parameters);
    // The backward pass goes from the last declared parameter to the first. It calls this when the gradients
    // of this parameter and of all declared after it are final; `watcher` gets the number.
    void completed(const Parameter& earliest) const {
        if (watcher_) watcher_(earliest.number);
    }
    void on_completed(std::function<void(std::size_t)> watcher) { watcher_ = std::move(watcher); }

    const std::deque<Parameter>& all() const { return parameters_; }
    std::int64_t count() const;         // numbers to learn here, without padding
    std::int64_t whole_count() const;   // of the whole model
    std::int64_t padded_count() const;  // as they lie in memory
    std::int64_t whole_padded_count() const;
    std::int64_t learned_count() const;  // of padded_count(), the first ones: all but the frozen
    std::int64_t whole_learned_count() const;
    Shard frozen() const { return {learned_count(), padded_count() - learned_count()}; }
    // Bytes of the sums with adapters.
    std::int64_t merged_bytes(Type compute_type) const;
    // Elements that gradients nobody reads are written to.
    std::int64_t unread_count() const { return unread_room(0) + unread_room(1); }

    // All values in one piece, including padding (zeros, which stay zero); first those with weight decay
    // (matrices and kernels), then biases and the like, then what is frozen, which the gradients end before.
    const Tensor& values() const { return values_; }
    // What operations take, where that is not the values themselves but all of them in bf16; or empty.
    Tensor narrow_copy() const { return compute_copy_.type() == values_.type() ? Tensor() : compute_copy_; }
    const Tensor& gradients() const { return gradients_; }
    std::int64_t decayed() const { return decayed_; }  // elements of the first

    const std::deque<Buffer>& all_buffers() const { return all_buffers_; }
    // All buffers in one piece, without padding; an empty tensor if a model has none. Each rank has its own.
    const Tensor& buffers() const { return buffers_; }

    // The values one after another without padding, in the order of declaration.
    std::vector<float> download(Device& device) const;

 private:
    std::deque<Parameter> parameters_;
    std::deque<LowRank> adapters_;
    Tensor values_, gradients_;
    Tensor compute_copy_;  // laid out as the values are, or the same
    std::deque<Buffer> all_buffers_;
    Tensor buffers_;
    std::int64_t decayed_ = 0;
    std::function<void(std::size_t)> watcher_;

    std::int64_t unread_room(std::size_t parity) const;
    std::int64_t largest_adapted() const;  // elements
};

// FNV-1a of the bytes, 64 bits: ranks compare it, and the summary shows it.
std::uint64_t hash_of(const std::vector<float>& values);

}  // namespace dp::trainer
