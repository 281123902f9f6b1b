// SPDX-License-Identifier: Apache-2.0
//
// The CPU device. Each operation is a function of float32 tensors, and each loop just its formula: the
// compiler vectorises it. What takes more than a loop is in separate files; float32_copies.hpp adds bf16.
#include "trainer/devices/cpu/cpu.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/text.hpp"
#include "trainer/base/bfloat16.hpp"
#include "trainer/devices/cpu/convolution.hpp"
#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/float32_copies.hpp"
#include "trainer/devices/cpu/gemm.hpp"
#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/parallel.hpp"
#include "trainer/devices/cpu/processor.hpp"
#include "trainer/devices/host_memory.hpp"
#include "trainer/devices/profiled.hpp"

namespace dp::trainer {
namespace cpu {
namespace {

void add_to(const float* __restrict in, std::int64_t count, float* __restrict out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] += in[i];
}

template <typename Stored>
void affine_row(const Stored* in, std::int64_t count, Affine affine, float* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * affine.scale + affine.shift;
}

void gather(In data, In indices, Affine affine, Out out) {
    const std::int64_t columns = data.columns();
    for (std::int64_t r = 0; r < out.rows(); ++r) {
        const std::int64_t from = indices.data<std::int32_t>()[r] * columns, to = r * columns;
        if (data.type() == Type::i32) {
            std::copy_n(data.data<std::int32_t>() + from, columns, out.data<std::int32_t>() + to);
        } else if (data.type() == Type::u16) {
            std::copy_n(data.data<std::uint16_t>() + from, columns, out.data<std::int32_t>() + to);
        } else if (data.type() == Type::u8) {
            affine_row(data.data<std::uint8_t>() + from, columns, affine, out.data<float>() + to);
        } else {
            affine_row(data.data<float>() + from, columns, affine, out.data<float>() + to);
        }
    }
}

// The first `columns` of c's rows = or += op(a) op(b), summed over `inner`.
bool product(std::int64_t rows, std::int64_t columns, std::int64_t inner, Operand a, Operand b, Write write,
             Out c) {
    return multiply(rows, columns, inner, 1, a, b, write == Write::add ? 1.0f : 0.0f, c.data<float>(),
                    c.columns());
}

bool linear(In x, In w, In b, Activation activation, Out y) {
    const auto rows = y.rows(), n = w.rows(), stride = y.columns();
    if (!product(rows, n, x.columns(), {x.data<float>(), x.columns()},
                 {w.data<float>(), w.columns(), Form::transposed}, Write::set, y))
        return false;
    if (!b && activation == Activation::none) return true;
    for_each_item(rows, kWorthAThread / n, [&](std::int64_t r) {
        float* row = y.data<float>() + r * stride;
        if (b) add_to(b.data<float>(), n, row);
        if (activation != Activation::relu) return;
        for (std::int64_t c = 0; c < n; ++c) row[c] = std::max(row[c], 0.0f);
    });
    return true;
}

bool linear_backward_input(In dy, In w, Out dx) {
    return product(dx.rows(), dx.columns(), w.rows(), {dy.data<float>(), dy.columns()},
                   {w.data<float>(), w.columns()}, Write::set, dx);
}

bool linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) {
    const std::int64_t n = dw.rows(), rows = dy.rows(), stride = dy.columns();
    if (!product(n, dw.columns(), rows, {dy.data<float>(), stride, Form::transposed},
                 {x.data<float>(), x.columns()}, write, dw))
        return false;
    if (!db) return true;
    // Each thread sums all rows of its columns: the same bits for any number of threads.
    for_each_part(n, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
        float* sum = db.data<float>() + first;
        if (write == Write::set) std::fill_n(sum, last - first, 0.0f);
        for (std::int64_t r = 0; r < rows; ++r)
            add_to(dy.data<float>() + r * stride + first, last - first, sum);
    });
    return true;
}

void relu_backward(In y, In dy, Out dx) {
    for_each_item(y.elements(), kWorthAThread,
                  [value = y.data<float>(), in = dy.data<float>(), out = dx.data<float>()](std::int64_t i) {
                      out[i] = value[i] > 0 ? in[i] : 0.0f;
                  });
}

// tanh by e^x, which is vectorised here.
constexpr float kGeluRoot = 0.7978845608f, kGeluCube = 0.044715f;
float gelu_tanh(float x) {
    const float e = exponential(-2 * kGeluRoot * (x + kGeluCube * x * x * x));
    return (1 - e) / (1 + e);
}
DP_WIDE_VECTORS void gelu_run(const float* x, std::int64_t count, float* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = 0.5f * x[i] * (1 + gelu_tanh(x[i]));
}
DP_WIDE_VECTORS void gelu_run_backward(const float* x, const float* dy, std::int64_t count, float* dx) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float t = gelu_tanh(x[i]);
        const float slope = kGeluRoot * (1 + 3 * kGeluCube * x[i] * x[i]);
        dx[i] = dy[i] * (0.5f * (1 + t) + 0.5f * x[i] * (1 - t * t) * slope);
    }
}
void gelu(In x, Out y) {
    for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        gelu_run(x.data<float>() + first, last - first, y.data<float>() + first);
    });
}
void gelu_backward(In x, In dy, Out dx) {
    for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        gelu_run_backward(x.data<float>() + first, dy.data<float>() + first, last - first,
                          dx.data<float>() + first);
    });
}

// Of the tokens of `words`, whose rows the table has; positions may be empty.
void document_starts(In tokens, std::int32_t end, Out starts) {
    const std::int64_t t = tokens.columns();
    for (std::int64_t row = 0, start = 0; row < tokens.elements(); ++row) {
        if (row % t == 0) start = 0;
        if (tokens.data<std::int32_t>()[row] == end) start = row % t;
        starts.data<std::int32_t>()[row] = static_cast<std::int32_t>(start);
    }
}

void embed_part(In tokens, In table, Shard words, In positions, Out y) {
    const std::int64_t columns = y.columns(), t = tokens.columns();
    for_each_item(y.rows(), kWorthAThread / columns, [&](std::int64_t r) {
        float* row = y.data<float>() + r * columns;
        const std::int64_t word = tokens.data<std::int32_t>()[r] - words.first;
        if (word >= 0 && word < words.count)
            std::copy_n(table.data<float>() + word * columns, columns, row);
        else
            std::fill_n(row, columns, 0.0f);
        if (positions) add_to(positions.data<float>() + r % t * columns, columns, row);
    });
}

void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) {
    const std::int64_t columns = dy.columns(), t = tokens.columns(), rows = dy.rows();
    for_each_part(columns, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t r = 0; r < rows; ++r) {
            const float* row = dy.data<float>() + r * columns + first;
            const std::int64_t word = tokens.data<std::int32_t>()[r] - words.first;
            if (word >= 0 && word < words.count)
                add_to(row, last - first, d_table.data<float>() + word * columns + first);
            add_to(row, last - first, d_positions.data<float>() + r % t * columns + first);
        }
    });
}

void embed(In tokens, In table, In positions, Out y) {
    embed_part(tokens, table, {0, table.rows()}, positions, y);
}
void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) {
    embed_part_backward(tokens, dy, {0, d_table.rows()}, d_table, d_positions);
}

// For each 2 x 2 block of x: the index of its first number, and of y's.
template <typename Work>
void for_each_window(ImageShape x, std::int64_t rows, Work work) {
    const std::int64_t height = x.height / 2, width = x.width / 2;
    for_each_item(rows * x.channels, kWorthAThread / (x.height * x.width), [=](std::int64_t plane) {
        std::int64_t to = plane * height * width;
        for (std::int64_t line = 0; line < height; ++line)
            for (std::int64_t column = 0; column < width; ++column)
                work((plane * x.height + 2 * line) * x.width + 2 * column, to++);
    });
}

void max_pool(ImageShape shape, In x, Out y, Out picked) {
    for_each_window(shape, y.rows(),
                    [in = x.data<float>(), out = y.data<float>(), which = picked.data<std::uint8_t>(),
                     width = shape.width](std::int64_t from, std::int64_t to) {
                        const std::int64_t corners[] = {from, from + 1, from + width, from + width + 1};
                        std::uint8_t best = 0;
                        for (std::uint8_t i = 1; i < 4; ++i)
                            best = in[corners[i]] > in[corners[best]] ? i : best;
                        out[to] = in[corners[best]];
                        which[to] = best;
                    });
}

void max_pool_backward(ImageShape shape, In dy, In picked, Out dx) {
    std::memset(dx.data<float>(), 0, dx.bytes());
    for_each_window(shape, dy.rows(),
                    [in = dy.data<float>(), out = dx.data<float>(), which = picked.data<std::uint8_t>(),
                     width = shape.width](std::int64_t from, std::int64_t to) {
                        out[from + which[to] % 2 + which[to] / 2 * width] = in[to];
                    });
}

void dropout(In x, const Dropout& dropout, Out y) {
    for_each_item(x.elements(), kWorthAThread,
                  [=, scale = 1 / (1 - dropout.rate), columns = x.columns(), in = x.data<float>(),
                   out = y.data<float>()](std::int64_t i) {
                      out[i] = is_kept(dropout, columns, i) ? in[i] * scale : 0.0f;
                  });
}

void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column, std::int64_t columns,
                  Write write) {
    // Rows are few and long here, so they are split, too.
    for_each_part(columns, kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t r = 0; r < from.rows(); ++r) {
            const float* in = from.data<float>() + r * from.columns() + from_column + first;
            float* out = to.data<float>() + r * to.columns() + to_column + first;
            if (write == Write::set) {
                std::copy_n(in, last - first, out);
            } else {
                add_to(in, last - first, out);
            }
        }
    });
}

DP_WIDE_VECTORS void widen(const Bfloat16* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}
DP_WIDE_VECTORS void narrow(const float* from, std::int64_t count, Bfloat16* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}
void convert(In from, Out to) {
    if (from.type() == to.type()) {
        std::memcpy(to.data<void>(), from.data<void>(), from.bytes());
        return;
    }
    for_each_part(from.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        if (to.type() == Type::f32) {
            widen(from.data<Bfloat16>() + first, last - first, to.data<float>() + first);
        } else {
            narrow(from.data<float>() + first, last - first, to.data<Bfloat16>() + first);
        }
    });
}

void add(In x, InOut y) {
    for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        add_to(x.data<float>() + first, last - first, y.data<float>() + first);
    });
}

void scale(InOut x, float factor) {
    for_each_item(x.elements(), kWorthAThread,
                  [=, values = x.data<float>()](std::int64_t i) { values[i] *= factor; });
}

double squares_of(const float* values, std::int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i)
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    return sum;
}

void square_sum(In x, Out sums) {
    // As many parts as the scratch holds, independent of the threads: always added in the same order.
    const std::int64_t count = x.elements(), parts = kSquareSums - 1;
    double* part_sums = sums.data<double>() + 1;
    for_each_item(parts, kWorthAThread * parts / (count + 1), [&](std::int64_t part) {
        const std::int64_t from = count * part / parts;
        part_sums[part] = squares_of(x.data<float>() + from, count * (part + 1) / parts - from);
    });
    sums.data<double>()[0] = std::accumulate(part_sums, part_sums + parts, 0.0);
}

void sgd(InOut parameters, In gradients, InOut velocity, const SgdStep& step) {
    for_each_part(parameters.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        float* __restrict p = parameters.data<float>(), * __restrict u = velocity.data<float>();
        const float* __restrict g = gradients.data<float>();
        for (std::int64_t i = first; i < last; ++i) {
            u[i] = step.momentum * u[i] + g[i] + step.decay * p[i];
            p[i] -= step.rate * u[i];
        }
    });
}

void adam(InOut parameters, In gradients, InOut m, InOut v, const AdamStep& step) {
    for_each_part(parameters.elements(), kWorthAThread, [&](std::int64_t from, std::int64_t to) {
        float* __restrict p = parameters.data<float>(), * __restrict first = m.data<float>();
        float* __restrict second = v.data<float>();
        const float* __restrict g = gradients.data<float>();
        for (std::int64_t i = from; i < to; ++i) {
            first[i] = step.beta1 * first[i] + (1 - step.beta1) * g[i];
            second[i] = step.beta2 * second[i] + (1 - step.beta2) * g[i] * g[i];
            p[i] = step.keep * p[i] -
                   step.rate * first[i] / (std::sqrt(second[i]) * step.root_scale + step.epsilon);
        }
    });
}

}  // namespace
}  // namespace cpu

namespace {

constexpr std::size_t kAlignment = 256;
// Memory besides tensors: oneDNN's code and buffers, threads' stacks; and three percent of the tensors for
// page tables and gaps (measured by tests/cluster/test_memory.py).
constexpr std::int64_t kLibraries = 2 << 20;

class Cpu : public Device {
 public:
    // omp_set_num_threads() counts for the calling thread's loops and for oneDNN.
    explicit Cpu(int threads) : threads_(threads) { omp_set_num_threads(threads); }

    std::string_view name() const override { return "cpu"; }
    std::string description() const override {
        return fmt::format("cpu, {}", plural(static_cast<std::size_t>(threads_), "thread"));
    }
    void synchronize() override {}
    DeviceFacts facts() const override {
        return {fmt::format("cpu, {}, {}", cpu::processor_name(),
                            plural(static_cast<std::size_t>(threads_), "thread")),
                cpu::onednn_version()};
    }
    void adopt(TunedChoices choices) override {
        threads_ = threads_of(choices, threads_);
        omp_set_num_threads(threads_);
        Device::adopt(std::move(choices));
    }

    std::optional<std::int64_t> available_memory(std::int64_t ranks_of_host) const override {
        const auto available = available_host_memory();
        if (!available) return available;
        const std::int64_t besides = kLibraries + threads_ * cpu::onednn_bytes_of_thread();
        return std::max<std::int64_t>(*available / ranks_of_host - besides, 0) / 103 * 100;
    }
    bool copies_bf16() const override { return true; }
    void reserve_copies(std::int64_t numbers) override { copies_.reserve(numbers); }

    // For 0 bytes the other side may be a null pointer, which memcpy does not allow.
    void upload(const void* from, Out to) override {
        if (!failed() && to.bytes() > 0) std::memcpy(to.data<void>(), from, to.bytes());
    }
    void download(In from, void* to) override {
        if (!failed() && from.bytes() > 0) std::memcpy(to, from.data<void>(), from.bytes());
    }
    void zero(Out tensor) override {
        if (!failed()) std::memset(tensor.data<void>(), 0, tensor.bytes());
    }

    void gather(In data, In indices, Affine affine, Out out) override {
        run(cpu::gather, data, indices, affine, write(out));
    }
    void linear(In x, In w, In b, Activation activation, Out y) override {
        run(cpu::linear, read(x), read(w), read(b), activation, write(y));
    }
    void linear_backward_input(In dy, In w, Out dx) override {
        run(cpu::linear_backward_input, read(dy), read(w), write(dx));
    }
    void linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) override {
        run(cpu::linear_backward_parameters, read(dy), read(x), dw, db, write);
    }
    // As in device.hpp, on one set of copies: nothing in between is rounded.
    void linear_add(In x, In w, In b, In added, Out y) override {
        Device::linear_add(read(x), read(w), read(b), read(added), write(y));
    }
    void linear_gelu(In x, In w, In b, Out up, Out y) override {
        Device::linear_gelu(read(x), read(w), read(b), write(up), write(y));
    }
    void linear_gelu_backward_input(In dy, In w, In up, Out d_up) override {
        Device::linear_gelu_backward_input(read(dy), read(w), read(up), write(d_up));
    }
    void relu_backward(In y, In dy, Out dx) override {
        run(cpu::relu_backward, read(y), read(dy), write(dx));
    }
    void gelu(In x, Out y) override { run(cpu::gelu, read(x), write(y)); }
    void gelu_backward(In x, In dy, Out dx) override {
        run(cpu::gelu_backward, read(x), read(dy), write(dx));
    }

    void embed(In tokens, In table, In positions, Out y) override {
        run(cpu::embed, tokens, read(table), read(positions), write(y));
    }
    void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) override {
        run(cpu::embed_backward, tokens, read(dy), d_table, d_positions);
    }
    void embed_part(In tokens, In table, Shard words, In positions, Out y) override {
        run(cpu::embed_part, tokens, read(table), words, read(positions), write(y));
    }
    void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) override {
        run(cpu::embed_part_backward, tokens, read(dy), words, d_table, d_positions);
    }
    void layer_norm(In x, In w, In b, Out y, Out saved) override {
        run(cpu::layer_norm, read(x), w, b, write(y), saved);
    }
    void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) override {
        run(cpu::layer_norm_backward, read(x), w, saved, read(dy), update(dx), dw, db);
    }
    void document_starts(In tokens, std::int32_t end, Out starts) override {
        run(cpu::document_starts, tokens, end, starts);
    }
    void attention(const Attention& a, In qkv, Out y, Out sums) override {
        run(cpu::attention, a, read(qkv), write(y), sums);
    }
    void attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) override {
        run(cpu::attention_backward, a, read(qkv), read(y), sums, read(dy), write(d_qkv));
    }

    void convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) override {
        run_convolution(c, Direction::forward, activation, read(x), read(w), write(y), read(b));
    }
    void convolve_backward_input(const Convolution& c, In dy, In w, Out dx) override {
        run_convolution(c, Direction::backward_input, Activation::none, write(dx), read(w), read(dy), {});
    }
    void convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) override {
        run_convolution(c, Direction::backward_parameters, Activation::none, read(x), dw, read(dy), db);
    }
    // Of copies in f32.
    std::int64_t convolution_scratch(const Convolution& c, std::int64_t rows, Type) const override {
        return convolutions_.scratch(c, rows);
    }
    void reserve_convolution_scratch(std::int64_t bytes) override { convolutions_.reserve(bytes); }

    void add_channels(ImageShape shape, In b, InOut y) override {
        run(cpu::add_channels, shape, read(b), update(y));
    }
    void sum_channels(ImageShape shape, In dy, Out db) override {
        run(cpu::sum_channels, shape, read(dy), db);
    }
    void batch_norm_sums(const BatchNorm& norm, In x, Out sums) override {
        run(cpu::batch_norm_sums, norm, read(x), sums);
    }
    void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running,
                    Out saved, Out y) override {
        run(cpu::batch_norm, norm, read(x), sums, rows, w, b, running, saved, write(y));
    }
    void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) override {
        run(cpu::batch_norm_inference, norm, read(x), w, b, running, write(y));
    }
    void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums,
                                  Out dw, Out db) override {
        run(cpu::batch_norm_backward_sums, norm, read(x), read(y), saved, read(dy), write(dx), sums, dw, db);
    }
    void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows,
                             InOut dx) override {
        run(cpu::batch_norm_backward, norm, read(x), w, saved, sums, rows, update(dx));
    }
    void max_pool(ImageShape shape, In x, Out y, Out picked) override {
        run(cpu::max_pool, shape, read(x), write(y), picked);
    }
    void max_pool_backward(ImageShape shape, In dy, In picked, Out dx) override {
        run(cpu::max_pool_backward, shape, read(dy), picked, write(dx));
    }
    void dropout(In x, Dropout dropout, Out y) override { run(cpu::dropout, read(x), dropout, write(y)); }

    void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                               Out d_logits) override {
        run(cpu::softmax_cross_entropy, read(logits), classes, labels, scale, metrics, write(d_logits));
    }
    void softmax_part(In logits, Shard words, In labels, Out notes) override {
        run(cpu::softmax_part, read(logits), words, labels, notes);
    }
    void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale,
                                        InOut metrics, Out d_logits) override {
        run(cpu::softmax_cross_entropy_of_parts, read(logits), words, labels, notes, scale, metrics,
            write(d_logits));
    }
    void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) override {
        run(cpu::squared_error, read(prediction), target, scale, metrics, write(d_prediction));
    }
    void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) override {
        run(cpu::sigmoid_dice, read(logits), target, scale, metrics, write(d_logits));
    }

    void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                      std::int64_t columns, Write write) override {
        run(cpu::copy_columns, read(from), from_column, update(to), to_column, columns, write);
    }
    void convert(In from, Out to) override { run(cpu::convert, from, to); }
    void add(In x, InOut y) override { run(cpu::add, read(x), update(y)); }
    void scale(InOut x, float factor) override { run(cpu::scale, x, factor); }
    void square_sum(In x, Out sums) override { run(cpu::square_sum, x, sums); }
    void sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) override {
        run(cpu::sgd, parameters, gradients, velocity, step);
    }
    void adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step) override {
        run(cpu::adam, parameters, gradients, m, v, step);
    }

 private:
    int threads_;
    cpu::Float32Copies copies_{*this};
    CpuConvolutions convolutions_{*this};

    std::shared_ptr<void> allocate(std::size_t bytes) override {
        if (failed()) return nullptr;
        // Refuses more than the machine has: Linux would hand it out and kill the process when it is touched.
        const std::size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
        const auto of_machine = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
        // calloc, because it knows what the kernel has zeroed; but it aligns to 16 bytes only.
        std::size_t room = rounded + kAlignment;
        void* memory = bytes > of_machine ? nullptr : std::calloc(1, room);
        if (memory == nullptr) return nullptr;
        void* aligned = memory;
        std::align(kAlignment, rounded, aligned, room);
        return {std::shared_ptr<void>(memory, std::free), aligned};
    }

    // Arguments of an operation: see Float32Copies.
    using Argument = cpu::Float32Copies::Argument;
    Argument read(In tensor) { return {copies_, tensor, true, false}; }
    Argument write(Out tensor) { return {copies_, tensor, false, true}; }
    Argument update(InOut tensor) { return {copies_, tensor, true, true}; }

    // Nothing after a failure, which may be that there is no memory for the arguments' copies.
    template <typename... Parameters, typename... Arguments>
    void run(void (*operation)(Parameters...), const Arguments&... arguments) {
        if (!failed()) operation(arguments...);
    }
    template <typename... Parameters, typename... Arguments>
    void run(bool (*operation)(Parameters...), const Arguments&... arguments) {
        if (!failed() && !operation(arguments...)) keep_failure("oneDNN refused a matrix product");
    }
    void run_convolution(const Convolution& c, Direction direction, Activation activation, In x, In w, In y,
                         In b) {
        if (failed()) return;
        if (const auto problem = convolutions_.run(c, direction, activation, x, w, y, b))
            keep_failure(*problem);
    }
};

}  // namespace

int threads_of(const TunedChoices& choices, int otherwise) {
    const auto threads = parse_number<int>(choices.find(kThreadsChoice).value_or(""));
    return threads && *threads >= 1 ? *threads : otherwise;
}

std::unique_ptr<Device> open_cpu(int threads, OperationLog* log) {
    if (log != nullptr) return std::make_unique<Profiled<Cpu>>(*log, threads);
    return std::make_unique<Cpu>(threads);
}

}  // namespace dp::trainer
