// SPDX-License-Identifier: Apache-2.0
//
// The CPU device. Each operation is a function of tensors, and each loop just its formula: the compiler
// vectorises it. What takes more than a loop is in separate files. Loops read and write f32 and bf16
// (numbers.hpp); products of bf16 are native_products.hpp's, or on copies (float32_copies.hpp).
#include "trainer/devices/cpu/cpu.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/text.hpp"
#include "trainer/base/bfloat16.hpp"
#include "trainer/devices/cpu/bf16_products.hpp"
#include "trainer/devices/cpu/convolution.hpp"
#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/float32_copies.hpp"
#include "trainer/devices/cpu/gemm.hpp"
#include "trainer/devices/cpu/native_products.hpp"
#include "trainer/devices/cpu/numbers.hpp"
#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/optimizer_loops.hpp"
#include "trainer/devices/cpu/parallel.hpp"
#include "trainer/devices/cpu/processor.hpp"
#include "trainer/devices/host_memory.hpp"
#include "trainer/devices/profiled.hpp"

namespace dp::trainer {
namespace cpu {
namespace {

template <typename From, typename To>
DP_WIDE_VECTORS void add_to(const From* in, std::int64_t count, To* out) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(wide(out[i]) + wide(in[i]), out[i]);
}

template <typename Stored, typename Number>
void affine_row(const Stored* in, std::int64_t count, Affine affine, Number* out) {
    for (std::int64_t i = 0; i < count; ++i)
        store(static_cast<float>(in[i]) * affine.scale + affine.shift, out[i]);
}

void gather(In data, In indices, Affine affine, Out out) {
    const std::int64_t columns = data.columns();
    in_type_of(out, [&](auto number) {
        using Number = decltype(number);
        for (std::int64_t r = 0; r < out.rows(); ++r) {
            const std::int64_t from = indices.data<std::int32_t>()[r] * columns, to = r * columns;
            if (data.type() == Type::i32) {
                std::copy_n(data.data<std::int32_t>() + from, columns, out.data<std::int32_t>() + to);
            } else if (data.type() == Type::u16) {
                std::copy_n(data.data<std::uint16_t>() + from, columns, out.data<std::int32_t>() + to);
            } else if (data.type() == Type::u8) {
                affine_row(data.data<std::uint8_t>() + from, columns, affine, out.data<Number>() + to);
            } else {
                affine_row(data.data<float>() + from, columns, affine, out.data<Number>() + to);
            }
        }
    });
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

// The first `n` of each row's.
void sum_rows(In dy, std::int64_t n, Write write, Out db) {
    const std::int64_t rows = dy.rows(), stride = dy.columns();
    // Each thread sums all rows of its columns: the same bits for any number of threads.
    in_type_of(dy, [&](auto number) {
        for_each_part(n, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
            float* sum = db.data<float>() + first;
            if (write == Write::set) std::fill_n(sum, last - first, 0.0f);
            for (std::int64_t r = 0; r < rows; ++r)
                add_to(dy.data<decltype(number)>() + r * stride + first, last - first, sum);
        });
    });
}

bool linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) {
    const std::int64_t n = dw.rows();
    if (!product(n, dw.columns(), dy.rows(), {dy.data<float>(), dy.columns(), Form::transposed},
                 {x.data<float>(), x.columns()}, write, dw))
        return false;
    if (db) sum_rows(dy, n, write, db);
    return true;
}

template <typename Number>
DP_WIDE_VECTORS void relu_run_backward(const Number* y, const Number* dy, std::int64_t count, Number* dx) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(wide(y[i]) > 0 ? wide(dy[i]) : 0.0f, dx[i]);
}
void relu_backward(In y, In dy, Out dx) {
    in_type_of(dy, [&](auto number) {
        using Number = decltype(number);
        for_each_part(y.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            relu_run_backward(y.data<Number>() + first, dy.data<Number>() + first, last - first,
                              dx.data<Number>() + first);
        });
    });
}

DP_WIDE_VECTORS void widen(const Bfloat16* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}
DP_WIDE_VECTORS void narrow(const float* from, std::int64_t count, Bfloat16* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

// tanh by e^x, which is vectorised here.
constexpr float kGeluRoot = 0.7978845608f, kGeluCube = 0.044715f;
float gelu_tanh(float x) {
    const float e = exponential(-2 * kGeluRoot * (x + kGeluCube * x * x * x));
    return (1 - e) / (1 + e);
}
template <typename Number>
DP_WIDE_VECTORS void gelu_run(const Number* in, std::int64_t count, Number* y) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float x = wide(in[i]);
        store(0.5f * x * (1 + gelu_tanh(x)), y[i]);
    }
}
DP_WIDE_VECTORS void gelu_run_backward(const float* x, const float* dy, std::int64_t count, float* dx) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float t = gelu_tanh(x[i]);
        const float slope = kGeluRoot * (1 + 3 * kGeluCube * x[i] * x[i]);
        dx[i] = dy[i] * (0.5f * (1 + t) + 0.5f * x[i] * (1 - t * t) * slope);
    }
}
// Some at a time, in the first cache: in one loop GCC vectorises none of it.
void gelu_run_backward(const Bfloat16* x, const Bfloat16* dy, std::int64_t count, Bfloat16* dx) {
    constexpr std::int64_t kSome = 1024;
    float wide_x[kSome], wide_dy[kSome];
    for (std::int64_t from = 0; from < count; from += kSome) {
        const std::int64_t some = std::min(kSome, count - from);
        widen(x + from, some, wide_x);
        widen(dy + from, some, wide_dy);
        gelu_run_backward(wide_x, wide_dy, some, wide_dy);
        narrow(wide_dy, some, dx + from);
    }
}
void gelu(In x, Out y) {
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            gelu_run(x.data<Number>() + first, last - first, y.data<Number>() + first);
        });
    });
}
void gelu_backward(In x, In dy, Out dx) {
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            gelu_run_backward(x.data<Number>() + first, dy.data<Number>() + first, last - first,
                              dx.data<Number>() + first);
        });
    });
}

void document_starts(In tokens, std::int32_t end, Out starts) {
    const std::int64_t t = tokens.columns();
    for (std::int64_t row = 0, start = 0; row < tokens.elements(); ++row) {
        if (row % t == 0) start = 0;
        if (tokens.data<std::int32_t>()[row] == end) start = row % t;
        starts.data<std::int32_t>()[row] = static_cast<std::int32_t>(start);
    }
}

// Of the tokens of `words`, whose rows the table has; positions may be empty.
void embed_part(In tokens, In table, Shard words, In positions, Out y) {
    const std::int64_t columns = y.columns(), t = tokens.columns();
    in_type_of(y, [&](auto number) {
        using Number = decltype(number);
        for_each_item(y.rows(), kWorthAThread / columns, [&](std::int64_t r) {
            Number* row = y.data<Number>() + r * columns;
            const std::int64_t word = tokens.data<std::int32_t>()[r] - words.first;
            if (word >= 0 && word < words.count)
                std::copy_n(table.data<Number>() + word * columns, columns, row);
            else
                std::fill_n(row, columns, Number{});
            if (positions) add_to(positions.data<Number>() + r % t * columns, columns, row);
        });
    });
}

void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) {
    const std::int64_t columns = dy.columns(), t = tokens.columns(), rows = dy.rows();
    in_type_of(dy, [&](auto number) {
        for_each_part(columns, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t r = 0; r < rows; ++r) {
                const auto* row = dy.data<decltype(number)>() + r * columns + first;
                const std::int64_t word = tokens.data<std::int32_t>()[r] - words.first;
                if (word >= 0 && word < words.count)
                    add_to(row, last - first, d_table.data<float>() + word * columns + first);
                add_to(row, last - first, d_positions.data<float>() + r % t * columns + first);
            }
        });
    });
}

void embed(In tokens, In table, In positions, Out y) {
    embed_part(tokens, table, {0, table.rows()}, positions, y);
}
void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) {
    embed_part_backward(tokens, dy, {0, d_table.rows()}, d_table, d_positions);
}

// Calls work(the place of an image's line, and of the line of windows above it and the next) for each of them.
template <typename Work>
void for_each_line_of_windows(ImageShape x, std::int64_t rows, Work work) {
    const std::int64_t height = x.height / 2, width = x.width / 2;
    for_each_item(rows * x.channels, kWorthAThread / (x.height * x.width), [=](std::int64_t plane) {
        for (std::int64_t line = 0; line < height; ++line)
            work((plane * x.height + 2 * line) * x.width, (plane * height + line) * width);
    });
}

// The value or 0, without a branch.
inline float if_so(bool so, float value) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0u - static_cast<std::uint32_t>(so)));
}

// `count` windows over the lines `top` and `below`.
template <typename Number>
DP_WIDE_VECTORS void pool_line(const Number* top, const Number* below, std::int64_t count, Number* y,
                               std::uint8_t* picked) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float first = wide(top[2 * i]), second = wide(top[2 * i + 1]);
        const float third = wide(below[2 * i]), fourth = wide(below[2 * i + 1]);
        // Of equals the first counts. Without a branch, which would keep it from being vectorised.
        const float upper = second > first ? second : first, most = third > upper ? third : upper;
        const int later = static_cast<int>(second > first) | 2 * static_cast<int>(third > upper),
                  last = 3 * static_cast<int>(fourth > most);
        constexpr std::uint32_t kWhich = 0x2210;  // of the first three, by `later`: 0, 1, 2, 2
        const int which = static_cast<int>(kWhich >> (4 * later)) & 3;
        store(fourth > most ? fourth : most, y[i]);
        picked[i] = static_cast<std::uint8_t>(last | which);
    }
}
template <typename Number>
DP_WIDE_VECTORS void pool_line_backward(const Number* dy, const std::uint8_t* picked, std::int64_t count,
                                        Number* top, Number* below) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float here = wide(dy[i]);
        const int which = picked[i];
        store(if_so(which == 0, here), top[2 * i]);
        store(if_so(which == 1, here), top[2 * i + 1]);
        store(if_so(which == 2, here), below[2 * i]);
        store(if_so(which == 3, here), below[2 * i + 1]);
    }
}

void max_pool(ImageShape shape, In x, Out y, Out picked) {
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_line_of_windows(shape, y.rows(), [&](std::int64_t from, std::int64_t to) {
            const Number* line = x.data<Number>() + from;
            pool_line(line, line + shape.width, shape.width / 2, y.data<Number>() + to,
                      picked.data<std::uint8_t>() + to);
        });
    });
}

void max_pool_backward(ImageShape shape, In dy, In picked, Out dx) {
    in_type_of(dy, [&](auto number) {
        using Number = decltype(number);
        if (shape.height % 2 != 0 || shape.width % 2 != 0) std::memset(dx.data<Number>(), 0, dx.bytes());
        for_each_line_of_windows(shape, dy.rows(), [&](std::int64_t to, std::int64_t from) {
            Number* line = dx.data<Number>() + to;
            pool_line_backward(dy.data<Number>() + from, picked.data<std::uint8_t>() + from, shape.width / 2,
                               line, line + shape.width);
        });
    });
}

// Numbers `first` to `last` of a tensor with rows of `columns`.
template <typename Number>
DP_WIDE_VECTORS void drop_run(const Number* x, std::int64_t first, std::int64_t last, const Dropout& dropout,
                              std::int64_t columns, Number* y) {
    const Dropout local = dropout;
    const float factor = 1 / (1 - local.rate);
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i)
        store(is_kept(local, columns, i) ? wide(x[i]) * factor : 0.0f, y[i]);
}
void dropout(In x, const Dropout& dropout, Out y) {
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            drop_run(x.data<Number>(), first, last, dropout, x.columns(), y.data<Number>());
        });
    });
}

void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column, std::int64_t columns,
                  Write write) {
    in_type_of(from, [&](auto number) {
        using Number = decltype(number);
        // Rows are few and long here, so they are split, too.
        for_each_part(columns, kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t r = 0; r < from.rows(); ++r) {
                const Number* in = from.data<Number>() + r * from.columns() + from_column + first;
                Number* out = to.data<Number>() + r * to.columns() + to_column + first;
                if (write == Write::set) {
                    std::copy_n(in, last - first, out);
                } else {
                    add_to(in, last - first, out);
                }
            }
        });
    });
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
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_part(x.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            add_to(x.data<Number>() + first, last - first, y.data<Number>() + first);
        });
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

void clip(In sums, double largest, Out clipping) {
    double squares = 0;
    for (std::int64_t row = 0; row < sums.rows(); ++row) squares += sums.data<double>()[row * sums.columns()];
    *clipping.data<Clipping>() = clipping_of(squares, largest);
}

void sgd(InOut parameters, In gradients, InOut velocity, const SgdStep& step) {
    if (step.clipping != nullptr && step.clipping->skips != 0) return;
    const float factor = step.clipping == nullptr ? 1 : step.clipping->factor;
    for_each_part(parameters.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        sgd_run(parameters.data<float>() + first, gradients.data<float>() + first,
                velocity.data<float>() + first, last - first, step, factor);
    });
}

void adam(InOut parameters, In gradients, InOut m, InOut v, const AdamStep& step, Out copy) {
    if (step.clipping != nullptr && step.clipping->skips != 0) return;
    const float factor = step.clipping == nullptr ? 1 : step.clipping->factor;
    const auto update = [&](std::int64_t from, std::int64_t to) {
        adam_run(parameters.data<float>() + from, gradients.data<float>() + from, m.data<float>() + from,
                 v.data<float>() + from, to - from, step, factor);
    };
    // Some at a time, which are copied out of the first cache.
    constexpr std::int64_t kSome = 1024;
    for_each_part(parameters.elements(), kWorthAThread, [&](std::int64_t from, std::int64_t to) {
        if (!copy) return update(from, to);
        for (; from < to; from += kSome) {
            const std::int64_t some = std::min(kSome, to - from);
            update(from, from + some);
            narrow(parameters.data<float>() + from, some, copy.data<Bfloat16>() + from);
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
    Cpu(int threads, Bf16Products bf16) : threads_(threads), bf16_(bf16) { omp_set_num_threads(threads); }

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
    bool copies_bf16() const override { return bf16_ == Bf16Products::on_copies; }
    void reserve_copies(std::int64_t numbers) override {
        if (copies_bf16()) copies_.reserve(numbers);
    }

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
        run(cpu::gather, data, indices, affine, out);
    }
    void linear(In x, In w, In b, Activation activation, Out y) override {
        if (is_native(x)) return run_product([&] { return products_.linear(x, w, b, {}, activation, y); });
        run(cpu::linear, read(x), read(w), read(b), activation, write(y));
    }
    void linear_backward_input(In dy, In w, Out dx) override {
        if (is_native(dy)) return run_product([&] { return products_.linear_backward_input(dy, w, dx); });
        run(cpu::linear_backward_input, read(dy), read(w), write(dx));
    }
    void linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) override {
        if (!is_native(dy)) return run(cpu::linear_backward_parameters, read(dy), read(x), dw, db, write);
        run_product([&] { return products_.linear_backward_weights(dy, x, dw, write); });
        if (db) run(cpu::sum_rows, dy, dw.rows(), write, db);
    }
    // On copies as in device.hpp, on one set of them: nothing in between is rounded.
    void linear_add(In x, In w, In b, In added, Out y) override {
        if (is_native(x))
            return run_product([&] { return products_.linear(x, w, b, added, Activation::none, y); });
        Device::linear_add(read(x), read(w), read(b), read(added), write(y));
    }
    void linear_gelu(In x, In w, In b, Out up, Out y) override {
        if (is_native(x)) return Device::linear_gelu(x, w, b, up, y);
        Device::linear_gelu(read(x), read(w), read(b), write(up), write(y));
    }
    void linear_gelu_backward_input(In dy, In w, In up, Out d_up) override {
        if (is_native(dy)) return Device::linear_gelu_backward_input(dy, w, up, d_up);
        Device::linear_gelu_backward_input(read(dy), read(w), read(up), write(d_up));
    }
    void relu_backward(In y, In dy, Out dx) override { run(cpu::relu_backward, y, dy, dx); }
    void gelu(In x, Out y) override { run(cpu::gelu, x, y); }
    void gelu_backward(In x, In dy, Out dx) override { run(cpu::gelu_backward, x, dy, dx); }

    void embed(In tokens, In table, In positions, Out y) override {
        run(cpu::embed, tokens, table, positions, y);
    }
    void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) override {
        run(cpu::embed_backward, tokens, dy, d_table, d_positions);
    }
    void embed_part(In tokens, In table, Shard words, In positions, Out y) override {
        run(cpu::embed_part, tokens, table, words, positions, y);
    }
    void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) override {
        run(cpu::embed_part_backward, tokens, dy, words, d_table, d_positions);
    }
    void layer_norm(In x, In w, In b, Out y, Out saved) override { run(cpu::layer_norm, x, w, b, y, saved); }
    void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) override {
        run(cpu::layer_norm_backward, x, w, saved, dy, dx, dw, db);
    }
    void document_starts(In tokens, std::int32_t end, Out starts) override {
        run(cpu::document_starts, tokens, end, starts);
    }
    void attention(const Attention& a, In qkv, Out y, Out sums) override {
        run(cpu::attention, a, qkv, y, sums);
    }
    void attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) override {
        run(cpu::attention_backward, a, qkv, y, sums, dy, d_qkv);
    }

    void convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) override {
        if (is_native(x)) return run_convolution(c, Direction::forward, activation, x, w, y, b);
        run_convolution(c, Direction::forward, activation, read(x), read(w), write(y), read(b));
    }
    void convolve_backward_input(const Convolution& c, In dy, In w, Out dx) override {
        const auto direction = Direction::backward_input;
        if (is_native(dy)) return run_convolution(c, direction, Activation::none, dx, w, dy, {});
        run_convolution(c, direction, Activation::none, write(dx), read(w), read(dy), {});
    }
    void convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) override {
        const auto direction = Direction::backward_parameters;
        if (is_native(dy)) return run_convolution(c, direction, Activation::none, x, dw, dy, db);
        run_convolution(c, direction, Activation::none, read(x), dw, read(dy), db);
    }
    std::int64_t convolution_scratch(const Convolution& c, std::int64_t rows, Type type) const override {
        return convolutions_.scratch(c, rows, copies_bf16() ? Type::f32 : type);
    }
    void reserve_convolution_scratch(std::int64_t bytes) override { convolutions_.reserve(bytes); }

    void add_channels(ImageShape shape, In b, InOut y) override { run(cpu::add_channels, shape, b, y); }
    void sum_channels(ImageShape shape, In dy, Out db) override { run(cpu::sum_channels, shape, dy, db); }
    void batch_norm_sums(const BatchNorm& norm, In x, Out sums) override {
        run(cpu::batch_norm_sums, norm, x, sums);
    }
    void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running,
                    Out saved, Out y) override {
        run(cpu::batch_norm, norm, x, sums, rows, w, b, running, saved, y);
    }
    void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) override {
        run(cpu::batch_norm_inference, norm, x, w, b, running, y);
    }
    void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums,
                                  Out dw, Out db) override {
        run(cpu::batch_norm_backward_sums, norm, x, y, saved, dy, dx, sums, dw, db);
    }
    void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows,
                             InOut dx) override {
        run(cpu::batch_norm_backward, norm, x, w, saved, sums, rows, dx);
    }
    void max_pool(ImageShape shape, In x, Out y, Out picked) override {
        run(cpu::max_pool, shape, x, y, picked);
    }
    void max_pool_backward(ImageShape shape, In dy, In picked, Out dx) override {
        run(cpu::max_pool_backward, shape, dy, picked, dx);
    }
    void dropout(In x, Dropout dropout, Out y) override { run(cpu::dropout, x, dropout, y); }

    void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                               Out d_logits) override {
        run(cpu::softmax_cross_entropy, logits, classes, labels, scale, metrics, d_logits);
    }
    void softmax_part(In logits, Shard words, In labels, Out notes) override {
        run(cpu::softmax_part, logits, words, labels, notes);
    }
    void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale,
                                        InOut metrics, Out d_logits) override {
        run(cpu::softmax_cross_entropy_of_parts, logits, words, labels, notes, scale, metrics, d_logits);
    }
    void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) override {
        run(cpu::squared_error, prediction, target, scale, metrics, d_prediction);
    }
    void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) override {
        run(cpu::sigmoid_dice, logits, target, scale, metrics, d_logits);
    }

    void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                      std::int64_t columns, Write write) override {
        run(cpu::copy_columns, from, from_column, to, to_column, columns, write);
    }
    void convert(In from, Out to) override { run(cpu::convert, from, to); }
    void add(In x, InOut y) override { run(cpu::add, x, y); }
    void scale(InOut x, float factor) override { run(cpu::scale, x, factor); }
    void square_sum(In x, Out sums) override { run(cpu::square_sum, x, sums); }
    void clip(In sums, double largest, Out clipping) override { run(cpu::clip, sums, largest, clipping); }
    void sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) override {
        run(cpu::sgd, parameters, gradients, velocity, step);
    }
    void adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step, Out copy) override {
        run(cpu::adam, parameters, gradients, m, v, step, copy);
    }

 private:
    int threads_;
    Bf16Products bf16_;
    cpu::Float32Copies copies_{*this};
    cpu::NativeProducts products_;
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

    bool is_native(In tensor) const { return tensor.type() == Type::bf16 && bf16_ == Bf16Products::native; }

    // Nothing after a failure, which may be that there is no memory for the arguments' copies.
    template <typename... Parameters, typename... Arguments>
    void run(void (*operation)(Parameters...), const Arguments&... arguments) {
        if (!failed()) operation(arguments...);
    }
    template <typename... Parameters, typename... Arguments>
    void run(bool (*operation)(Parameters...), const Arguments&... arguments) {
        if (!failed() && !operation(arguments...)) keep_failure("oneDNN refused a matrix product");
    }
    template <typename Product>
    void run_product(Product product) {
        if (!failed() && !product()) keep_failure("oneDNN refused a matrix product of bf16");
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
    return open_cpu_with(bf16_products_here(), threads, log);
}

std::unique_ptr<Device> open_cpu_with(Bf16Products bf16, int threads, OperationLog* log) {
    if (log != nullptr) return std::make_unique<Profiled<Cpu>>(*log, threads, bf16);
    return std::make_unique<Cpu>(threads, bf16);
}

}  // namespace dp::trainer
