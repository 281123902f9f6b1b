// SPDX-License-Identifier: Apache-2.0
//
// What a device did: each operation with its time, the arithmetic and the memory traffic that its shapes ask for, and the
// tensors that it used. profiled.hpp and parallel/profiled_communicator.hpp write it, profile/ reads it. A device that works
// behind the calls of its operations says later when it did: device_timeline.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/devices/device_timeline.hpp"

namespace dp::trainer {

// Those of Device, then those of Communicator.
enum class Operation : std::uint8_t {
    upload,
    download,
    zero,
    gather,
    linear,
    linear_backward_input,
    linear_backward_parameters,
    linear_add,
    relu_backward,
    gelu,
    gelu_backward,
    linear_gelu,
    linear_gelu_backward_input,
    embed,
    embed_backward,
    document_starts,
    layer_norm,
    layer_norm_backward,
    attention,
    attention_backward,
    convolve,
    convolve_backward_input,
    convolve_backward_parameters,
    add_channels,
    sum_channels,
    batch_norm_sums,
    batch_norm,
    batch_norm_backward_sums,
    batch_norm_backward,
    max_pool,
    max_pool_backward,
    dropout,
    softmax_cross_entropy,
    squared_error,
    sigmoid_dice,
    copy_columns,
    convert,
    add,
    scale,
    square_sum,
    clip,
    sgd,
    adam,
    all_reduce,
    small_all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    start_all_reduces,
    wait_all_reduces,
    node_barrier,
    send,
    wait_send,
    receive,
};
std::string_view name_of(Operation operation);

// What an operation does with a tensor. `rows`: some of its rows, whose traffic is not
// counted.
enum class Access : std::uint8_t { read, write, update, rows };

struct Use {
    const Tensor* tensor;  // may be empty
    Access access;
};

struct LoggedUse {
    std::uint32_t memory;  // in OperationLog::memories()
    Access access;
    double bytes;  // of the tensor
};

struct LoggedOperation {
    Operation operation;
    std::uint32_t owner;      // in OperationLog::owners()
    std::int64_t begin, end;  // in nanoseconds of the steady clock
    double flops;             // multiplications and additions of products
    double bytes;             // of the tensors, at least
    std::uint32_t first_use, uses;
};

// What a tensor with a name is.
enum class Named : std::uint8_t { value, gradient };

// An allocation, as far as operations have used it.
struct LoggedMemory {
    const void* address;
    std::int64_t bytes = 0;
    std::uint32_t owner = 0;          // the layer that last wrote to it
    std::optional<Named> named = {};  // it holds tensors with a name
};

std::int64_t steady_nanoseconds();

// One thread uses it.
class OperationLog {
 public:
    // Logs what happens from now on; until then, time() does nothing.
    void start();
    void stop() { is_on_ = false; }

    // For a device that works behind its calls.
    void set_timeline(std::shared_ptr<DeviceTimeline> timeline) { timeline_ = std::move(timeline); }
    bool has_timeline() const { return timeline_ != nullptr; }
    // Tells the timeline of operations also while nothing is logged: for what only names them.
    void announce_all() { announces_ = true; }
    // For such a device.
    void wait() {
        if (timeline_) timeline_->wait();
    }
    // Waits for it, and gives each operation the time that the device took for it. Nothing is logged afterwards, until clear().
    Result<void> settle();
    // What it did beside that, in the order of their beginnings: collectives on a stream of their own.
    const std::vector<DeviceWork>& aside() const { return aside_; }

    // While it lives an operation runs. What that does by other operations is a part of it.
    class Timed {
     public:
        explicit Timed(OperationLog* log) : log_(log) {}
        Timed(const Timed&) = delete;
        Timed& operator=(const Timed&) = delete;
        ~Timed() {
            if (log_ != nullptr) log_->end();
        }

     private:
        OperationLog* log_;  // null: it is not logged
    };
    Timed time(Operation operation, double flops, std::initializer_list<Use> uses) {
        if (is_inside_ || !(is_on_ || announces_)) return Timed(nullptr);
        begin(operation, flops, uses);
        return Timed(this);
    }

    // From now on, an operation that takes this tensor is this layer's; and one that takes what it wrote, and no tensor with a
    // name.
    void name(const Tensor& tensor, Named what, const std::string& layer);
    // Forgets all that it has.
    void clear();

    const std::vector<LoggedOperation>& operations() const { return operations_; }
    const std::vector<LoggedUse>& uses() const { return uses_; }
    const std::vector<LoggedMemory>& memories() const { return memories_; }
    const std::vector<std::string>& owners() const { return owners_; }  // the first is "": nobody

 private:
    struct Name {
        Named what;
        std::uint32_t owner;
        std::size_t bytes;  // of the tensor: a longer one is another
    };
    bool is_on_ = false, is_inside_ = false, is_settled_ = false, announces_ = false;
    std::shared_ptr<DeviceTimeline> timeline_;  // null: the device works while it is called
    std::vector<DeviceWork> aside_;
    std::vector<LoggedOperation> operations_;
    std::vector<LoggedUse> uses_;
    std::vector<LoggedMemory> memories_;
    std::vector<std::string> owners_{""};
    std::unordered_map<const void*, Name> names_;
    std::unordered_map<const void*, std::uint32_t> writers_;  // by a tensor's first element
    std::unordered_map<const void*, std::uint32_t> memory_of_;

    void begin(Operation operation, double flops, std::initializer_list<Use> uses);
    void end();
    const Name* name_of(const Tensor& tensor) const;  // null: it has none
    std::uint32_t owner_of(std::initializer_list<Use> uses) const;
    std::uint32_t memory_of(const Tensor& tensor);
};

}  // namespace dp::trainer
