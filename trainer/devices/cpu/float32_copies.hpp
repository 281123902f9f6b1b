// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 on a CPU that does not multiply it: a linear layer or a convolution on bf16 tensors runs on
// float32 copies, and its results are rounded when it ends. This takes more time and memory than fp32. cpu.cpp
// uses it.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

class Float32Copies {
 public:
    explicit Float32Copies(Device& device) : device_(device) {}

    // Reserves room for all copies of an operation at once: a piece that proves too small would stay until
    // the operation ends.
    void reserve(std::int64_t numbers) { hold_one_piece(numbers + kMostTensors * kAlignment); }

    // A tensor as an argument of an operation: a float32 copy of a bf16 tensor, and any other as it is. If a
    // result replaces an input, so does its copy. The operation ends with the last of its arguments.
    class Argument {
     public:
        Argument(Float32Copies& copies, const Tensor& tensor, bool is_read, bool is_result)
            : copies_(tensor.type() == Type::bf16 ? &copies : nullptr),
              tensor_(copies_ != nullptr ? copies.copy(tensor, is_read, is_result) : tensor) {}
        Argument(const Argument&) = delete;
        Argument& operator=(const Argument&) = delete;
        ~Argument() {
            if (copies_ != nullptr && --copies_->arguments_ == 0) copies_->end_operation();
        }
        operator const Tensor&() const { return tensor_; }

     private:
        Float32Copies* copies_;  // null: not copied
        const Tensor& tensor_;
    };

 private:
    static constexpr std::int64_t kMostTensors = 6;  // no operation has more
    static constexpr std::int64_t kAlignment = 64;   // 256 bytes, as all tensors are
    struct Copy {
        const Tensor* tensor = nullptr;
        Tensor wide;  // empty if the device has no more memory
        bool is_read = false, is_result = false;
    };
    Device& device_;
    std::vector<Tensor> pieces_;         // memory for copies, kept for the next operation
    std::int64_t used_ = 0, taken_ = 0;  // of the last piece, which is being filled, and of all
    std::list<Copy> copies_;             // of the operation that is called
    int arguments_ = 0;                  // of it

    // Arguments are evaluated in any order: a result may come before the input that it replaces.
    const Tensor& copy(const Tensor& tensor, bool is_read, bool is_result) {
        ++arguments_;
        Copy& one = copy_of(tensor);
        if (is_read && !one.is_read && one.wide) device_.convert(tensor, one.wide);
        one.is_read |= is_read;
        one.is_result |= is_result;
        return one.wide;
    }
    Copy& copy_of(const Tensor& tensor) {
        for (Copy& one : copies_)
            if (one.tensor->data<void>() == tensor.data<void>()) return one;
        copies_.push_back({&tensor, take(tensor.shape())});
        return copies_.back();
    }
    void hold_one_piece(std::int64_t numbers) {
        pieces_.clear();
        if (Tensor piece = device_.make(Type::f32, {numbers})) pieces_.push_back(std::move(piece));
    }
    Tensor take(const Shape& shape) {
        const std::int64_t count = (elements_of(shape) + kAlignment - 1) / kAlignment * kAlignment;
        if (pieces_.empty() || used_ + count > pieces_.back().elements()) {
            Tensor piece = device_.make(Type::f32, {count});
            if (!piece) return {};
            pieces_.push_back(std::move(piece));
            used_ = 0;
        }
        used_ += count;
        taken_ += count;
        return pieces_.back().view(used_ - count, shape);
    }
    void end_operation() {
        for (const Copy& one : copies_)
            if (one.is_result && one.wide) device_.convert(one.wide, *one.tensor);
        copies_.clear();  // before the memory that they hold
        if (pieces_.size() > 1) hold_one_piece(taken_);
        used_ = taken_ = 0;
    }
};

}  // namespace dp::trainer::cpu
