// SPDX-License-Identifier: Apache-2.0
//
// A device that logs its operations (operation_log.hpp), for `trainer --profile`: each for the time that the host is in it, which
// on a CPU is what it takes. Products count 2 operations for each multiplication with its addition, whatever a library really does;
// the causal half of attention's scores counts.
#pragma once

#include <utility>

#include "trainer/devices/device.hpp"
#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {

// `Base`: a device. The log must outlive it.
template <typename Base>
class Profiled final : public Base {
 public:
    template <typename... Arguments>
    explicit Profiled(OperationLog& log, Arguments&&... arguments)
        : Base(std::forward<Arguments>(arguments)...), log_(log) {}

    void upload(const void* from, Out to) override {
        const auto timed = log_.time(Operation::upload, 0, {write(to)});
        Base::upload(from, to);
    }
    void download(In from, void* to) override {
        const auto timed = log_.time(Operation::download, 0, {read(from)});
        Base::download(from, to);
    }
    void zero(Out tensor) override {
        const auto timed = log_.time(Operation::zero, 0, {write(tensor)});
        Base::zero(tensor);
    }
    void gather(In data, In indices, Affine affine, Out out) override {
        const auto timed = log_.time(Operation::gather, 0, {rows(data), read(indices), write(out)});
        Base::gather(data, indices, affine, out);
    }
    void linear(In x, In w, In b, Activation activation, Out y) override {
        const auto timed = log_.time(Operation::linear, product(x, w), {read(x), read(w), read(b), write(y)});
        Base::linear(x, w, b, activation, y);
    }
    void linear_backward_input(In dy, In w, Out dx) override {
        const auto timed =
            log_.time(Operation::linear_backward_input, product(dx, w), {read(dy), read(w), write(dx)});
        Base::linear_backward_input(dy, w, dx);
    }
    void linear_backward_parameters(In dy, In x, Out dw, Out db, Write how) override {
        const auto timed = log_.time(Operation::linear_backward_parameters, product(x, dw),
                                     {read(dy), read(x), result(dw, how), result(db, how)});
        Base::linear_backward_parameters(dy, x, dw, db, how);
    }
    void linear_add(In x, In w, In b, In added, Out y) override {
        const auto timed = log_.time(Operation::linear_add, product(x, w),
                                     {read(x), read(w), read(b), read(added), write(y)});
        Base::linear_add(x, w, b, added, y);
    }
    void relu_backward(In y, In dy, Out dx) override {
        const auto timed = log_.time(Operation::relu_backward, 0, {read(y), read(dy), write(dx)});
        Base::relu_backward(y, dy, dx);
    }
    void gelu(In x, Out y) override {
        const auto timed = log_.time(Operation::gelu, 0, {read(x), write(y)});
        Base::gelu(x, y);
    }
    void gelu_backward(In x, In dy, Out dx) override {
        const auto timed = log_.time(Operation::gelu_backward, 0, {read(x), read(dy), write(dx)});
        Base::gelu_backward(x, dy, dx);
    }
    void linear_gelu(In x, In w, In b, Out up, Out y) override {
        const auto timed = log_.time(Operation::linear_gelu, product(x, w),
                                     {read(x), read(w), read(b), write(up), write(y)});
        Base::linear_gelu(x, w, b, up, y);
    }
    void linear_gelu_backward_input(In dy, In w, In up, Out d_up) override {
        const auto timed = log_.time(Operation::linear_gelu_backward_input, product(d_up, w),
                                     {read(dy), read(w), read(up), write(d_up)});
        Base::linear_gelu_backward_input(dy, w, up, d_up);
    }
    void embed(In tokens, In table, In positions, Out y) override {
        const auto timed =
            log_.time(Operation::embed, 0, {read(tokens), rows(table), rows(positions), write(y)});
        Base::embed(tokens, table, positions, y);
    }
    void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) override {
        const auto timed = log_.time(Operation::embed_backward, 0,
                                     {read(tokens), read(dy), rows(d_table), rows(d_positions)});
        Base::embed_backward(tokens, dy, d_table, d_positions);
    }
    void embed_part(In tokens, In table, Shard words, In positions, Out y) override {
        const auto timed =
            log_.time(Operation::embed, 0, {read(tokens), rows(table), rows(positions), write(y)});
        Base::embed_part(tokens, table, words, positions, y);
    }
    void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) override {
        const auto timed = log_.time(Operation::embed_backward, 0,
                                     {read(tokens), read(dy), rows(d_table), rows(d_positions)});
        Base::embed_part_backward(tokens, dy, words, d_table, d_positions);
    }
    void layer_norm(In x, In w, In b, Out y, Out saved) override {
        const auto timed =
            log_.time(Operation::layer_norm, 0, {read(x), read(w), read(b), write(y), write(saved)});
        Base::layer_norm(x, w, b, y, saved);
    }
    void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) override {
        const auto timed =
            log_.time(Operation::layer_norm_backward, 0,
                      {read(x), read(w), read(saved), read(dy), update(dx), write(dw), write(db)});
        Base::layer_norm_backward(x, w, saved, dy, dx, dw, db);
    }
    void document_starts(In tokens, std::int32_t end, Out starts) override {
        const auto timed = log_.time(Operation::document_starts, 0, {read(tokens), write(starts)});
        Base::document_starts(tokens, end, starts);
    }
    void attention(const Attention& a, In qkv, Out y, Out sums) override {
        const auto timed =
            log_.time(Operation::attention, 4 * pairs(a, y), {read(qkv), write(y), write(sums)});
        Base::attention(a, qkv, y, sums);
    }
    void attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) override {
        const auto timed = log_.time(Operation::attention_backward, 10 * pairs(a, y),
                                     {read(qkv), read(y), read(sums), read(dy), write(d_qkv)});
        Base::attention_backward(a, qkv, y, sums, dy, d_qkv);
    }
    void convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) override {
        const auto timed =
            log_.time(Operation::convolve, convolution(c, x), {read(x), read(w), read(b), write(y)});
        Base::convolve(c, x, w, b, activation, y);
    }
    void convolve_backward_input(const Convolution& c, In dy, In w, Out dx) override {
        const auto timed =
            log_.time(Operation::convolve_backward_input, convolution(c, dy), {read(dy), read(w), write(dx)});
        Base::convolve_backward_input(c, dy, w, dx);
    }
    void convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) override {
        const auto timed = log_.time(Operation::convolve_backward_parameters, convolution(c, x),
                                     {read(dy), read(x), write(dw), write(db)});
        Base::convolve_backward_parameters(c, dy, x, dw, db);
    }
    void add_channels(ImageShape shape, In b, InOut y) override {
        const auto timed = log_.time(Operation::add_channels, 0, {read(b), update(y)});
        Base::add_channels(shape, b, y);
    }
    void sum_channels(ImageShape shape, In dy, Out db) override {
        const auto timed = log_.time(Operation::sum_channels, 0, {read(dy), write(db)});
        Base::sum_channels(shape, dy, db);
    }
    void batch_norm_sums(const BatchNorm& norm, In x, Out sums) override {
        const auto timed = log_.time(Operation::batch_norm_sums, 0, {read(x), write(sums)});
        Base::batch_norm_sums(norm, x, sums);
    }
    void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows_of_batch, In w, In b,
                    InOut running, Out saved, Out y) override {
        const auto timed =
            log_.time(Operation::batch_norm, 0,
                      {read(x), read(sums), read(w), read(b), update(running), write(saved), write(y)});
        Base::batch_norm(norm, x, sums, rows_of_batch, w, b, running, saved, y);
    }
    void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums,
                                  Out dw, Out db) override {
        const auto timed = log_.time(
            Operation::batch_norm_backward_sums, 0,
            {read(x), read(y), read(saved), read(dy), write(dx), write(sums), write(dw), write(db)});
        Base::batch_norm_backward_sums(norm, x, y, saved, dy, dx, sums, dw, db);
    }
    void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows_of_batch,
                             InOut dx) override {
        const auto timed = log_.time(Operation::batch_norm_backward, 0,
                                     {read(x), read(w), read(saved), read(sums), update(dx)});
        Base::batch_norm_backward(norm, x, w, saved, sums, rows_of_batch, dx);
    }
    void max_pool(ImageShape x_shape, In x, Out y, Out picked) override {
        const auto timed = log_.time(Operation::max_pool, 0, {read(x), write(y), write(picked)});
        Base::max_pool(x_shape, x, y, picked);
    }
    void max_pool_backward(ImageShape x_shape, In dy, In picked, Out dx) override {
        const auto timed = log_.time(Operation::max_pool_backward, 0, {read(picked), read(dy), write(dx)});
        Base::max_pool_backward(x_shape, dy, picked, dx);
    }
    void dropout(In x, Dropout dropout, Out y) override {
        const auto timed = log_.time(Operation::dropout, 0, {read(x), write(y)});
        Base::dropout(x, dropout, y);
    }
    void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                               Out d_logits) override {
        const auto timed = log_.time(Operation::softmax_cross_entropy, 0,
                                     {read(logits), read(labels), update(metrics), write(d_logits)});
        Base::softmax_cross_entropy(logits, classes, labels, scale, metrics, d_logits);
    }
    void softmax_part(In logits, Shard words, In labels, Out notes) override {
        const auto timed =
            log_.time(Operation::softmax_cross_entropy, 0, {read(logits), read(labels), rows(notes)});
        Base::softmax_part(logits, words, labels, notes);
    }
    void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale,
                                        InOut metrics, Out d_logits) override {
        const auto timed =
            log_.time(Operation::softmax_cross_entropy, 0,
                      {read(logits), read(labels), read(notes), update(metrics), write(d_logits)});
        Base::softmax_cross_entropy_of_parts(logits, words, labels, notes, scale, metrics, d_logits);
    }
    void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) override {
        const auto timed = log_.time(Operation::squared_error, 0,
                                     {read(prediction), read(target), update(metrics), write(d_prediction)});
        Base::squared_error(prediction, target, scale, metrics, d_prediction);
    }
    void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) override {
        const auto timed = log_.time(Operation::sigmoid_dice, 0,
                                     {read(logits), read(target), update(metrics), write(d_logits)});
        Base::sigmoid_dice(logits, target, scale, metrics, d_logits);
    }
    void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                      std::int64_t columns, Write how) override {
        const auto timed = log_.time(Operation::copy_columns, 0, {rows(from), rows(to)});
        Base::copy_columns(from, from_column, to, to_column, columns, how);
    }
    void convert(In from, Out to) override {
        const auto timed = log_.time(Operation::convert, 0, {read(from), write(to)});
        Base::convert(from, to);
    }
    void add(In x, InOut y) override {
        const auto timed = log_.time(Operation::add, 0, {read(x), update(y)});
        Base::add(x, y);
    }
    void scale(InOut x, float factor) override {
        const auto timed = log_.time(Operation::scale, 0, {update(x)});
        Base::scale(x, factor);
    }
    void square_sum(In x, Out sums) override {
        const auto timed = log_.time(Operation::square_sum, 0, {read(x), write(sums)});
        Base::square_sum(x, sums);
    }
    void clip(In sums, double largest, Out clipping) override {
        const auto timed = log_.time(Operation::clip, 0, {read(sums), write(clipping)});
        Base::clip(sums, largest, clipping);
    }
    void sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) override {
        const auto timed =
            log_.time(Operation::sgd, 0, {update(parameters), read(gradients), update(velocity)});
        Base::sgd(parameters, gradients, velocity, step);
    }
    void adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step) override {
        const auto timed =
            log_.time(Operation::adam, 0, {update(parameters), read(gradients), update(m), update(v)});
        Base::adam(parameters, gradients, m, v, step);
    }

 private:
    OperationLog& log_;

    static Use read(In tensor) { return {&tensor, Access::read}; }
    static Use write(Out tensor) { return {&tensor, Access::write}; }
    static Use update(InOut tensor) { return {&tensor, Access::update}; }
    static Use rows(In tensor) { return {&tensor, Access::rows}; }
    static Use result(Out tensor, Write how) { return how == Write::add ? update(tensor) : write(tensor); }

    // FLOP of x [r, k] times w [n, k].
    static double product(In x, In w) {
        return 2 * static_cast<double>(x.elements()) * static_cast<double>(w.rows());
    }
    // Of each image on c's smaller or larger side.
    static double convolution(const Convolution& c, In images) {
        return 2 * static_cast<double>(images.rows() * c.y().numbers()) *
               static_cast<double>(c.x.channels * c.kernel * c.kernel);
    }
    // Pairs of tokens of which one attends to the other, times the numbers of a token.
    static double pairs(const Attention& a, In y) {
        return static_cast<double>(y.elements()) * static_cast<double>(a.sequence + 1) / 2;
    }
};

}  // namespace dp::trainer
