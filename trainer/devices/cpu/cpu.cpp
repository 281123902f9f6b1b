// SPDX-License-Identifier: Apache-2.0
//
// The CPU device (see devices/device.hpp for the operations). Each loop is just its formula: the compiler
// vectorises it, and most time is spent in oneDNN. What takes more than a loop is in separate files.
#include "trainer/devices/cpu/cpu.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "trainer/devices/cpu/attention.hpp"
#include "trainer/devices/cpu/convolution.hpp"
#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/gemm.hpp"
#include "trainer/devices/cpu/losses.hpp"
#include "trainer/devices/cpu/normalisation.hpp"
#include "trainer/devices/cpu/parallel.hpp"
#include "trainer/devices/cpu/processor.hpp"
#include "trainer/devices/cpu/with_bfloat16.hpp"
#include "trainer/devices/host_memory.hpp"

namespace dp::trainer {
namespace {

constexpr std::size_t kAlignment = 256;
// Memory besides tensors: oneDNN's code and buffers, threads' stacks; and three percent of the tensors for
// page tables and gaps (measured by tests/cluster/test_memory.py).
constexpr std::int64_t kLibraries = 2 << 20, kLibrariesOfThread = 2 << 20;

std::size_t physical_memory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// tanh by e^x, which is vectorised here.
constexpr float kGeluRoot = 0.7978845608f, kGeluCube = 0.044715f;
float gelu_tanh(float x) {
    const float e = cpu::exponential(-2 * kGeluRoot * (x + kGeluCube * x * x * x));
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

// Computes in float32; WithBfloat16 adds bf16.
class Cpu : public Device {
 public:
    explicit Cpu(int threads) : threads_(threads) { cpu::use_threads(threads); }

    std::string_view name() const override { return "cpu"; }
    std::string description() const override {
        return fmt::format("cpu, {} thread{}", threads_, threads_ == 1 ? "" : "s");
    }
    Result<void> status() const override {
        if (failure_) return tl::unexpected(*failure_);
        return {};
    }
    void synchronize() override {}
    DeviceFacts facts() const override {
        return {
            fmt::format("cpu, {}, {} thread{}", cpu::processor_name(), threads_, threads_ == 1 ? "" : "s"),
            cpu::onednn_version()};
    }
    void adopt(TunedChoices choices) override {
        threads_ = threads_of(choices, threads_);
        cpu::use_threads(threads_);
        Device::adopt(std::move(choices));
    }

    void* allocate(std::size_t bytes) override {
        if (failure_) return nullptr;
        // aligned_alloc wants a multiple of the alignment; an empty tensor still gets an address of its own.
        // Refuses more than the machine has: Linux would hand it out and kill the process when it is touched.
        const std::size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
        void* memory = bytes > physical_memory() ? nullptr : std::aligned_alloc(kAlignment, rounded);
        if (memory == nullptr) return out_of_memory(bytes);
        std::memset(memory, 0, rounded);
        return memory;
    }
    void release(void* memory) noexcept override { std::free(memory); }
    void* out_of_memory(std::size_t bytes) override {
        memory().note_exhausted();
        if (!failure_) failure_ = Error{Fault::device, out_of_memory_message("cpu", bytes)};
        return nullptr;
    }
    std::optional<std::int64_t> available_memory(std::int64_t ranks_of_host) const override {
        const auto available = available_host_memory();
        if (!available) return available;
        const std::int64_t besides = kLibraries + threads_ * kLibrariesOfThread;
        return std::max<std::int64_t>(*available / ranks_of_host - besides, 0) / 103 * 100;
    }

    // For 0 bytes the other side may be a null pointer, which memcpy does not allow.
    void upload(const void* from, const Tensor& to) override {
        if (!failure_ && to.bytes() > 0) std::memcpy(to.data<void>(), from, to.bytes());
    }
    void download(const Tensor& from, void* to) override {
        if (!failure_ && from.bytes() > 0) std::memcpy(to, from.data<void>(), from.bytes());
    }
    void zero(const Tensor& tensor) override {
        if (!failure_) std::memset(tensor.data<void>(), 0, tensor.bytes());
    }

    void gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out) override {
        if (failure_) return;
        const std::int64_t columns = data.columns();
        for (std::int64_t r = 0; r < out.rows(); ++r) {
            const std::int64_t from = indices.data<std::int32_t>()[r] * columns;
            if (data.type() == Type::i32) {
                std::copy_n(data.data<std::int32_t>() + from, columns,
                            out.data<std::int32_t>() + r * columns);
            } else if (data.type() == Type::u16) {
                std::copy_n(data.data<std::uint16_t>() + from, columns,
                            out.data<std::int32_t>() + r * columns);
            } else if (data.type() == Type::u8) {
                affine_row(data.data<std::uint8_t>() + from, columns, affine,
                           out.data<float>() + r * columns);
            } else {
                affine_row(data.data<float>() + from, columns, affine, out.data<float>() + r * columns);
            }
        }
    }

    void linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation,
                const Tensor& y) override {
        if (failure_) return;
        const auto rows = y.rows(), n = w.rows(), stride = y.columns();
        multiply(rows, n, x.columns(), {x.data<float>(), x.columns()},
                 {w.data<float>(), w.columns(), cpu::Form::transposed}, Write::set, y);
        if (!b && activation == Activation::none) return;
        cpu::for_each_part(rows, cpu::kWorthAThread / n, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t r = first; r < last; ++r) {
                float* row = y.data<float>() + r * stride;
                if (b) add_to(b.data<float>(), n, row);
                if (activation != Activation::relu) continue;
                for (std::int64_t c = 0; c < n; ++c) row[c] = std::max(row[c], 0.0f);
            }
        });
    }

    void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) override {
        if (failure_) return;
        multiply(dx.rows(), dx.columns(), w.rows(), {dy.data<float>(), dy.columns()},
                 {w.data<float>(), w.columns()}, Write::set, dx);
    }

    void linear_backward_parameters(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db,
                                    Write write) override {
        if (failure_) return;
        multiply(dw.rows(), dw.columns(), dy.rows(), {dy.data<float>(), dy.columns(), cpu::Form::transposed},
                 {x.data<float>(), x.columns()}, write, dw);
        if (!db) return;
        // Each thread sums all rows of its columns: the same bits for any number of threads.
        const std::int64_t n = dw.rows(), rows = dy.rows(), stride = dy.columns();
        cpu::for_each_part(n, cpu::kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
            float* sum = db.data<float>() + first;
            if (write == Write::set) std::fill_n(sum, last - first, 0.0f);
            for (std::int64_t r = 0; r < rows; ++r)
                add_to(dy.data<float>() + r * stride + first, last - first, sum);
        });
    }

    void gelu(const Tensor& x, const Tensor& y) override {
        if (failure_) return;
        cpu::for_each_part(x.elements(), cpu::kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            gelu_run(x.data<float>() + first, last - first, y.data<float>() + first);
        });
    }
    void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) override {
        if (failure_) return;
        cpu::for_each_part(x.elements(), cpu::kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            gelu_run_backward(x.data<float>() + first, dy.data<float>() + first, last - first,
                              dx.data<float>() + first);
        });
    }

    void embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y) override {
        if (failure_) return;
        const std::int64_t columns = y.columns(), t = tokens.columns();
        cpu::for_each_part(
            y.rows(), cpu::kWorthAThread / columns, [&](std::int64_t first, std::int64_t last) {
                for (std::int64_t r = first; r < last; ++r) {
                    float* row = y.data<float>() + r * columns;
                    std::copy_n(table.data<float>() + tokens.data<std::int32_t>()[r] * columns, columns, row);
                    add_to(positions.data<float>() + r % t * columns, columns, row);
                }
            });
    }
    void embed_backward(const Tensor& tokens, const Tensor& dy, const Tensor& d_table,
                        const Tensor& d_positions) override {
        if (failure_) return;
        const std::int64_t columns = dy.columns(), t = tokens.columns(), rows = dy.rows();
        cpu::for_each_part(columns, cpu::kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t r = 0; r < rows; ++r) {
                const float* row = dy.data<float>() + r * columns + first;
                const std::int64_t token = tokens.data<std::int32_t>()[r];
                add_to(row, last - first, d_table.data<float>() + token * columns + first);
                add_to(row, last - first, d_positions.data<float>() + r % t * columns + first);
            }
        });
    }

    void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y,
                    const Tensor& saved) override {
        if (!failure_) cpu::layer_norm(x, w, b, y, saved);
    }
    void layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                             const Tensor& dx, const Tensor& dw, const Tensor& db) override {
        if (!failure_) cpu::layer_norm_backward(x, w, saved, dy, dx, dw, db);
    }
    void attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums) override {
        if (!failure_) expect(cpu::attention(a, qkv, y, sums));
    }
    void attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                            const Tensor& dy, const Tensor& d_qkv) override {
        if (!failure_) expect(cpu::attention_backward(a, qkv, y, sums, dy, d_qkv));
    }

    void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& b,
                  Activation activation, const Tensor& y) override {
        if (!failure_) keep(convolutions_.forward(c, x, w, b, activation, y));
    }
    void convolve_backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                 const Tensor& dx) override {
        if (!failure_) keep(convolutions_.backward_input(c, dy, w, dx));
    }
    void convolve_backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                      const Tensor& dw, const Tensor& db) override {
        if (!failure_) keep(convolutions_.backward_parameters(c, dy, x, dw, db));
    }

    std::int64_t convolution_scratch(const Convolution& c, std::int64_t rows) const override {
        return convolutions_.scratch(c, rows);
    }
    void reserve_convolution_scratch(std::int64_t bytes) override { convolutions_.reserve(bytes); }

    void add_channels(ImageShape shape, const Tensor& b, const Tensor& y) override {
        if (failure_) return;
        const std::int64_t plane = shape.height * shape.width;
        cpu::for_each_part(y.rows() * shape.channels, cpu::kWorthAThread / plane,
                           [&](std::int64_t first, std::int64_t last) {
                               for (std::int64_t p = first; p < last; ++p) {
                                   float* numbers = y.data<float>() + p * plane;
                                   const float bias = b.data<float>()[p % shape.channels];
                                   for (std::int64_t i = 0; i < plane; ++i) numbers[i] += bias;
                               }
                           });
    }
    void sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db) override {
        if (failure_) return;
        const std::int64_t plane = shape.height * shape.width, rows = dy.rows();
        cpu::for_each_part(shape.channels, 1, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t c = first; c < last; ++c) {
                double sum = 0;
                for (std::int64_t r = 0; r < rows; ++r)
                    sum += cpu::sum_of(dy.data<float>() + (r * shape.channels + c) * plane, plane);
                db.data<float>()[c] = static_cast<float>(sum);
            }
        });
    }

    void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) override {
        if (!failure_) cpu::batch_norm_sums(norm, x, sums);
    }
    void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                    const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved,
                    const Tensor& y) override {
        if (!failure_) cpu::batch_norm(norm, x, sums, rows, w, b, running, saved, y);
    }
    void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                              const Tensor& running, const Tensor& y) override {
        if (!failure_) cpu::batch_norm_inference(norm, x, w, b, running, y);
    }
    void batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y,
                                  const Tensor& saved, const Tensor& dy, const Tensor& dx, const Tensor& sums,
                                  const Tensor& dw, const Tensor& db) override {
        if (!failure_) cpu::batch_norm_backward_sums(norm, x, y, saved, dy, dx, sums, dw, db);
    }
    void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& saved,
                             const Tensor& sums, std::int64_t rows, const Tensor& dx) override {
        if (!failure_) cpu::batch_norm_backward(norm, x, w, saved, sums, rows, dx);
    }

    void max_pool(ImageShape shape, const Tensor& x, const Tensor& y, const Tensor& picked) override {
        if (failure_) return;
        const float* in = x.data<float>();
        float* out = y.data<float>();
        auto* which = picked.data<std::uint8_t>();
        for_each_window(shape, y.rows(), [=, width = shape.width](std::int64_t from, std::int64_t to) {
            const std::int64_t corners[] = {from, from + 1, from + width, from + width + 1};
            std::uint8_t best = 0;
            for (std::uint8_t i = 1; i < 4; ++i) best = in[corners[i]] > in[corners[best]] ? i : best;
            out[to] = in[corners[best]];
            which[to] = best;
        });
    }
    void max_pool_backward(ImageShape shape, const Tensor& dy, const Tensor& picked,
                           const Tensor& dx) override {
        if (failure_) return;
        zero(dx);
        const float* in = dy.data<float>();
        float* out = dx.data<float>();
        const auto* which = picked.data<std::uint8_t>();
        for_each_window(shape, dy.rows(), [=, width = shape.width](std::int64_t from, std::int64_t to) {
            out[from + which[to] % 2 + which[to] / 2 * width] = in[to];
        });
    }

    void dropout(const Tensor& x, Dropout dropout, const Tensor& y) override {
        if (failure_) return;
        const float* in = x.data<float>();
        float* out = y.data<float>();
        const float scale = 1 / (1 - dropout.rate);
        const std::int64_t columns = x.columns();
        cpu::for_each_part(x.elements(), cpu::kWorthAThread, [=](std::int64_t first, std::int64_t last) {
            for (std::int64_t i = first; i < last; ++i)
                out[i] = is_kept(dropout, columns, i) ? in[i] * scale : 0.0f;
        });
    }

    void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override {
        if (failure_) return;
        const float *value = y.data<float>(), *in = dy.data<float>();
        float* out = dx.data<float>();
        cpu::for_each_part(y.elements(), cpu::kWorthAThread, [=](std::int64_t first, std::int64_t last) {
            for (std::int64_t i = first; i < last; ++i) out[i] = value[i] > 0 ? in[i] : 0.0f;
        });
    }

    void softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels, float scale,
                               const Tensor& metrics, const Tensor& d_logits) override {
        if (!failure_) cpu::softmax_cross_entropy(logits, classes, labels, scale, metrics, d_logits);
    }
    void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                       const Tensor& d_prediction) override {
        if (!failure_) cpu::squared_error(prediction, target, scale, metrics, d_prediction);
    }
    void sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                      const Tensor& d_logits) override {
        if (!failure_) cpu::sigmoid_dice(logits, target, scale, metrics, d_logits);
    }

    void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                      std::int64_t columns, Write write) override {
        if (failure_) return;
        // Rows are few and long here, so they are split, too.
        cpu::for_each_part(columns, cpu::kWorthAThread, [&](std::int64_t first, std::int64_t last) {
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

    void add(const Tensor& x, const Tensor& y) override {
        if (failure_) return;
        cpu::for_each_part(x.elements(), cpu::kWorthAThread, [&](std::int64_t first, std::int64_t last) {
            add_to(x.data<float>() + first, last - first, y.data<float>() + first);
        });
    }
    void scale(const Tensor& x, float factor) override {
        if (failure_) return;
        float* values = x.data<float>();
        cpu::for_each_part(x.elements(), cpu::kWorthAThread, [=](std::int64_t first, std::int64_t last) {
            for (std::int64_t i = first; i < last; ++i) values[i] *= factor;
        });
    }
    void square_sum(const Tensor& x, const Tensor& sums) override {
        if (failure_) return;
        // As many parts as the scratch holds, independent of the threads: always added in the same order.
        const std::int64_t count = x.elements(), parts = kSquareSums - 1;
        double* part_sums = sums.data<double>() + 1;
        cpu::for_each_part(
            parts, cpu::kWorthAThread * parts / (count + 1), [&](std::int64_t first, std::int64_t last) {
                for (std::int64_t part = first; part < last; ++part) {
                    const std::int64_t from = count * part / parts;
                    part_sums[part] = squares_of(x.data<float>() + from, count * (part + 1) / parts - from);
                }
            });
        sums.data<double>()[0] = std::accumulate(part_sums, part_sums + parts, 0.0);
    }

    void sgd(const Tensor& parameters, const Tensor& gradients, const Tensor& velocity,
             SgdStep step) override {
        if (failure_) return;
        cpu::for_each_part(
            parameters.elements(), cpu::kWorthAThread, [&](std::int64_t first, std::int64_t last) {
                float* __restrict p = parameters.data<float>(), * __restrict u = velocity.data<float>();
                const float* __restrict g = gradients.data<float>();
                for (std::int64_t i = first; i < last; ++i) {
                    u[i] = step.momentum * u[i] + g[i] + step.decay * p[i];
                    p[i] -= step.rate * u[i];
                }
            });
    }

    void adam(const Tensor& parameters, const Tensor& gradients, const Tensor& m, const Tensor& v,
              AdamStep step) override {
        if (failure_) return;
        cpu::for_each_part(
            parameters.elements(), cpu::kWorthAThread, [&](std::int64_t from, std::int64_t to) {
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

 private:
    int threads_;
    std::optional<Error> failure_;
    CpuConvolutions convolutions_{*this};

    void keep(const std::optional<std::string>& problem) {
        if (problem) failure_ = Error{Fault::device, "cpu: " + *problem};
    }

    void expect(bool done) {
        if (!done) keep("oneDNN refused a matrix product");
    }

    // For each 2 x 2 block of x: the index of its first number, and of y's.
    template <typename Work>
    static void for_each_window(ImageShape x, std::int64_t rows, Work work) {
        const std::int64_t height = x.height / 2, width = x.width / 2;
        cpu::for_each_part(rows * x.channels, cpu::kWorthAThread / (x.height * x.width),
                           [=](std::int64_t first, std::int64_t last) {
                               std::int64_t to = first * height * width;
                               for (std::int64_t plane = first; plane < last; ++plane)
                                   for (std::int64_t line = 0; line < height; ++line)
                                       for (std::int64_t column = 0; column < width; ++column)
                                           work((plane * x.height + 2 * line) * x.width + 2 * column, to++);
                           });
    }

    static void add_to(const float* __restrict in, std::int64_t count, float* __restrict out) {
        for (std::int64_t i = 0; i < count; ++i) out[i] += in[i];
    }
    static double squares_of(const float* values, std::int64_t count) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < count; ++i)
            sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        return sum;
    }

    template <typename In>
    static void affine_row(const In* in, std::int64_t count, Affine affine, float* out) {
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = static_cast<float>(in[i]) * affine.scale + affine.shift;
    }

    // The first `columns` of c's rows = or += op(a) op(b), summed over `inner`.
    void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, cpu::Operand a, cpu::Operand b,
                  Write write, const Tensor& c) {
        expect(cpu::multiply(rows, columns, inner, 1, a, b, write == Write::add ? 1.0f : 0.0f,
                             c.data<float>(), c.columns()));
    }
};

}  // namespace

int threads_of(const TunedChoices& choices, int otherwise) {
    const std::string text = choices.find(kThreadsChoice).value_or("");
    int threads = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    return error == std::errc() && end == text.data() + text.size() && threads >= 1 ? threads : otherwise;
}

std::unique_ptr<Device> open_cpu(int threads) {
    return std::make_unique<cpu::WithBfloat16<Cpu>>(threads);
}

}  // namespace dp::trainer
