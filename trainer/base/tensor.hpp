// SPDX-License-Identifier: Apache-2.0
//
// A tensor: a typed view of memory that a device owns; only devices look inside. A Tensor is a handle (copies
// share the memory), so operations take outputs by const reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace dp::trainer {

enum class Type { u8, u16, i32, i64, bf16, f32, f64 };

constexpr std::size_t size_of(Type type) {
    switch (type) {
        case Type::u8:
            return 1;
        case Type::u16:
        case Type::bf16:
            return 2;
        case Type::i32:
        case Type::f32:
            return 4;
        default:
            return 8;
    }
}

using Shape = std::vector<std::int64_t>;

inline std::int64_t elements_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

class Tensor {
 public:
    Tensor() = default;
    // `memory` keeps the allocation alive (its deleter gives it back to the device).
    Tensor(std::shared_ptr<void> memory, Type type, Shape shape)
        : memory_(std::move(memory)), type_(type), shape_(std::move(shape)) {}

    // False if never allocated: an optional output that is not wanted.
    explicit operator bool() const { return memory_ != nullptr; }

    Type type() const { return type_; }
    const Shape& shape() const { return shape_; }
    std::int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
    // Elements per row: the product of all dimensions except the first.
    std::int64_t columns() const { return rows() == 0 ? 0 : elements() / rows(); }
    std::int64_t elements() const { return elements_of(shape_); }
    std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }

    // The first element, in device memory. T must be the tensor's type; of bf16 Bfloat16 (bfloat16.hpp).
    template <typename T>
    T* data() const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(memory_.get()) + offset_);
    }

    // Where the allocation begins that it is a view of; only to tell allocations apart.
    const void* allocation() const { return memory_.get(); }

    // Another shape over the same memory, `skip` elements further. The caller stays inside the allocation.
    Tensor view(std::int64_t skip, Shape shape) const {
        Tensor other(memory_, type_, std::move(shape));
        other.offset_ = offset_ + static_cast<std::size_t>(skip) * size_of(type_);
        return other;
    }

    // The first `count` rows.
    Tensor first_rows(std::int64_t count) const {
        Shape shape = shape_;
        shape.at(0) = count;
        return view(0, std::move(shape));
    }

 private:
    std::shared_ptr<void> memory_;
    std::size_t offset_ = 0;
    Type type_ = Type::f32;
    Shape shape_;
};

}  // namespace dp::trainer
