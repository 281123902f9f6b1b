// SPDX-License-Identifier: Apache-2.0
//
// bf16 on the CPU device, which computes in float32 only: an operation on bf16 tensors runs on float32
// copies, and its final results are rounded. This shows what training in bf16 gives, and costs more time and
// memory than fp32. float32 tensors are not copied. cpu.cpp wraps its device in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/devices/cpu/bfloat16.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// f32 scratch memory for one operation, reused by the next: a single piece, as large as the
// largest operation needs.
class OperationScratch {
 public:
    static constexpr std::size_t kMostTensors = 6;  // no operation has more

    explicit OperationScratch(Device& device) : device_(device) {}

    // Reserves room for all tensors of an operation at once: a buffer that proves too small would stay until
    // the operation ends.
    void reserve(std::int64_t numbers) {
        pieces_.clear();
        numbers += kMostTensors * kAlignment;
        if (Tensor piece = device_.make(Type::f32, {numbers})) pieces_.push_back(std::move(piece));
    }

    // An empty tensor if the device has no more memory.
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

    // After each operation.
    void give_back() {
        if (pieces_.size() > 1) {
            pieces_.clear();
            if (Tensor piece = device_.make(Type::f32, {taken_})) pieces_.push_back(std::move(piece));
        }
        used_ = taken_ = 0;
    }

 private:
    static constexpr std::int64_t kAlignment = 64;  // 256 bytes, as all tensors are
    Device& device_;
    std::vector<Tensor> pieces_;  // the last one is being filled
    std::int64_t used_ = 0;       // of that
    std::int64_t taken_ = 0;      // of all
};

// The tensors of one call: a float32 copy of a bf16 tensor, and any other as it is. If a result replaces an
// input, so does its copy.
class Call {
 public:
    explicit Call(OperationScratch& scratch) : scratch_(scratch) {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
        if (count_ == 0) return;
        for (std::size_t i = 0; i < count_; ++i)
            if (copies_[i].is_result && copies_[i].wide) convert(copies_[i].wide, *copies_[i].tensor);
        copies_ = {};  // before the scratch, whose memory they hold
        scratch_.give_back();
    }

    const Tensor& read(const Tensor& tensor) { return copy(tensor, true, false); }
    const Tensor& write(const Tensor& tensor) { return copy(tensor, false, true); }
    const Tensor& update(const Tensor& tensor) { return copy(tensor, true, true); }

 private:
    struct Copy {
        const Tensor* tensor = nullptr;
        Tensor wide;
        bool is_read = false;
        bool is_result = false;
    };
    OperationScratch& scratch_;
    std::array<Copy, OperationScratch::kMostTensors> copies_;
    std::size_t count_ = 0;

    // Arguments are evaluated in any order: a result may come before the input that it replaces.
    const Tensor& copy(const Tensor& tensor, bool is_read, bool is_result) {
        if (tensor.type() != Type::bf16) return tensor;
        Copy& one = copy_of(tensor);
        if (is_read && !one.is_read && one.wide) convert(tensor, one.wide);
        one.is_read |= is_read;
        one.is_result |= is_result;
        return one.wide;
    }
    Copy& copy_of(const Tensor& tensor) {
        for (std::size_t i = 0; i < count_; ++i)
            if (copies_[i].tensor->data<void>() == tensor.data<void>()) return copies_[i];
        Copy& one = copies_.at(count_++);
        one.tensor = &tensor;
        one.wide = scratch_.take(tensor.shape());
        return one;
    }
};

// `Base`: the device for float32.
template <typename Base>
class WithBfloat16 final : public Base {
 public:
    using Base::Base;

    bool copies_bf16() const override { return true; }
    void reserve_copies(std::int64_t numbers) override { scratch_.reserve(numbers); }

    void convert(const Tensor& from, const Tensor& to) override {
        if (this->status()) cpu::convert(from, to);
    }

    void gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out) override {
        Call call(scratch_);
        Base::gather(data, indices, affine, call.write(out));
    }

    void linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation,
                const Tensor& y) override {
        Call call(scratch_);
        Base::linear(call.read(x), call.read(w), call.read(b), activation, call.write(y));
    }
    void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) override {
        Call call(scratch_);
        Base::linear_backward_input(call.read(dy), call.read(w), call.write(dx));
    }
    void linear_backward_parameters(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db,
                                    Write write) override {
        Call call(scratch_);
        Base::linear_backward_parameters(call.read(dy), call.read(x), dw, db, write);
    }
    void linear_add(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& added,
                    const Tensor& y) override {
        Call call(scratch_);
        Base::linear_add(call.read(x), call.read(w), call.read(b), call.read(added), call.write(y));
    }
    void linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& up,
                     const Tensor& y) override {
        Call call(scratch_);
        Base::linear_gelu(call.read(x), call.read(w), call.read(b), call.write(up), call.write(y));
    }
    void linear_gelu_backward_input(const Tensor& dy, const Tensor& w, const Tensor& up,
                                    const Tensor& d_up) override {
        Call call(scratch_);
        Base::linear_gelu_backward_input(call.read(dy), call.read(w), call.read(up), call.write(d_up));
    }
    void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override {
        Call call(scratch_);
        Base::relu_backward(call.read(y), call.read(dy), call.write(dx));
    }
    void gelu(const Tensor& x, const Tensor& y) override {
        Call call(scratch_);
        Base::gelu(call.read(x), call.write(y));
    }
    void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) override {
        Call call(scratch_);
        Base::gelu_backward(call.read(x), call.read(dy), call.write(dx));
    }

    void embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y) override {
        Call call(scratch_);
        Base::embed(tokens, call.read(table), call.read(positions), call.write(y));
    }
    void embed_backward(const Tensor& tokens, const Tensor& dy, const Tensor& d_table,
                        const Tensor& d_positions) override {
        Call call(scratch_);
        Base::embed_backward(tokens, call.read(dy), d_table, d_positions);
    }
    void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y,
                    const Tensor& saved) override {
        Call call(scratch_);
        Base::layer_norm(call.read(x), w, b, call.write(y), saved);
    }
    void layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                             const Tensor& dx, const Tensor& dw, const Tensor& db) override {
        Call call(scratch_);
        Base::layer_norm_backward(call.read(x), w, saved, call.read(dy), call.update(dx), dw, db);
    }
    void attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums) override {
        Call call(scratch_);
        Base::attention(a, call.read(qkv), call.write(y), sums);
    }
    void attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                            const Tensor& dy, const Tensor& d_qkv) override {
        Call call(scratch_);
        Base::attention_backward(a, call.read(qkv), call.read(y), sums, call.read(dy), call.write(d_qkv));
    }

    void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& b,
                  Activation activation, const Tensor& y) override {
        Call call(scratch_);
        Base::convolve(c, call.read(x), call.read(w), call.read(b), activation, call.write(y));
    }
    void convolve_backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                 const Tensor& dx) override {
        Call call(scratch_);
        Base::convolve_backward_input(c, call.read(dy), call.read(w), call.write(dx));
    }
    void convolve_backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                      const Tensor& dw, const Tensor& db) override {
        Call call(scratch_);
        Base::convolve_backward_parameters(c, call.read(dy), call.read(x), dw, db);
    }
    void add_channels(ImageShape shape, const Tensor& b, const Tensor& y) override {
        Call call(scratch_);
        Base::add_channels(shape, call.read(b), call.update(y));
    }
    void sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db) override {
        Call call(scratch_);
        Base::sum_channels(shape, call.read(dy), db);
    }
    void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) override {
        Call call(scratch_);
        Base::batch_norm_sums(norm, call.read(x), sums);
    }
    void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                    const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved,
                    const Tensor& y) override {
        Call call(scratch_);
        Base::batch_norm(norm, call.read(x), sums, rows, w, b, running, saved, call.write(y));
    }
    void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                              const Tensor& running, const Tensor& y) override {
        Call call(scratch_);
        Base::batch_norm_inference(norm, call.read(x), w, b, running, call.write(y));
    }
    void batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y,
                                  const Tensor& saved, const Tensor& dy, const Tensor& dx, const Tensor& sums,
                                  const Tensor& dw, const Tensor& db) override {
        Call call(scratch_);
        Base::batch_norm_backward_sums(norm, call.read(x), call.read(y), saved, call.read(dy), call.write(dx),
                                       sums, dw, db);
    }
    void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& saved,
                             const Tensor& sums, std::int64_t rows, const Tensor& dx) override {
        Call call(scratch_);
        Base::batch_norm_backward(norm, call.read(x), w, saved, sums, rows, call.update(dx));
    }
    void max_pool(ImageShape shape, const Tensor& x, const Tensor& y, const Tensor& picked) override {
        Call call(scratch_);
        Base::max_pool(shape, call.read(x), call.write(y), picked);
    }
    void max_pool_backward(ImageShape shape, const Tensor& dy, const Tensor& picked,
                           const Tensor& dx) override {
        Call call(scratch_);
        Base::max_pool_backward(shape, call.read(dy), picked, call.write(dx));
    }
    void dropout(const Tensor& x, Dropout dropout, const Tensor& y) override {
        Call call(scratch_);
        Base::dropout(call.read(x), dropout, call.write(y));
    }

    void softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels, float scale,
                               const Tensor& metrics, const Tensor& d_logits) override {
        Call call(scratch_);
        Base::softmax_cross_entropy(call.read(logits), classes, labels, scale, metrics, call.write(d_logits));
    }
    void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                       const Tensor& d_prediction) override {
        Call call(scratch_);
        Base::squared_error(call.read(prediction), target, scale, metrics, call.write(d_prediction));
    }
    void sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                      const Tensor& d_logits) override {
        Call call(scratch_);
        Base::sigmoid_dice(call.read(logits), target, scale, metrics, call.write(d_logits));
    }

    void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                      std::int64_t columns, Write write) override {
        Call call(scratch_);
        Base::copy_columns(call.read(from), from_column, call.update(to), to_column, columns, write);
    }
    void add(const Tensor& x, const Tensor& y) override {
        Call call(scratch_);
        Base::add(call.read(x), call.update(y));
    }

 private:
    OperationScratch scratch_{*this};
};

}  // namespace dp::trainer::cpu
