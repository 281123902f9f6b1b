// SPDX-License-Identifier: Apache-2.0
//
// The CPU device (see devices/device.hpp for what each operation means). Each loop says nothing but its
// formula: the compiler vectorises it, and the time goes into OpenBLAS's sgemm.
#include "trainer/devices/cpu.hpp"

#include <cblas.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "trainer/devices/cpu_convolution.hpp"

// Of the OpenMP that oneDNN runs in; its header is GCC's alone.
extern "C" void omp_set_num_threads(int threads);

namespace dp::trainer {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t physical_memory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class Cpu final : public Device {
 public:
    explicit Cpu(int threads) : threads_(threads) {
        openblas_set_num_threads(threads);
        omp_set_num_threads(threads);  // oneDNN's
    }

    std::string_view name() const override { return "cpu"; }
    std::string description() const override {
        return fmt::format("cpu, {} thread{}", threads_, threads_ == 1 ? "" : "s");
    }
    Result<void> status() const override {
        if (failure_) return tl::make_unexpected(*failure_);
        return {};
    }
    void synchronize() override {}

    void* allocate(std::size_t bytes) override {
        if (failure_) return nullptr;
        // aligned_alloc wants a multiple of the alignment; an empty tensor still gets an address of its own.
        // More than the machine has is refused here: Linux would hand it out and kill the process when it is
        // touched.
        const std::size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
        void* memory = bytes > physical_memory() ? nullptr : std::aligned_alloc(kAlignment, rounded);
        if (memory == nullptr) {
            failure_ = Error{Fault::device,
                             fmt::format("cpu: out of memory, {} MiB asked for; give a smaller --batch-size",
                                         bytes >> 20)};
            return nullptr;
        }
        std::memset(memory, 0, rounded);
        return memory;
    }
    void release(void* memory) noexcept override { std::free(memory); }

    void upload(const void* from, const Tensor& to) override {
        if (!failure_) std::memcpy(to.data<void>(), from, to.bytes());
    }
    void download(const Tensor& from, void* to) override {
        if (!failure_) std::memcpy(to, from.data<void>(), from.bytes());
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
        const auto rows = y.rows(), n = y.columns();
        multiply(CblasNoTrans, CblasTrans, rows, n, x.columns(), x, x.columns(), w, w.columns(), y);
        const float* bias = b.data<float>();
        for (std::int64_t r = 0; r < rows; ++r) {
            float* row = y.data<float>() + r * n;
            if (activation == Activation::relu) {
                for (std::int64_t c = 0; c < n; ++c) row[c] = std::max(row[c] + bias[c], 0.0f);
            } else {
                for (std::int64_t c = 0; c < n; ++c) row[c] += bias[c];
            }
        }
    }

    void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) override {
        if (failure_) return;
        multiply(CblasNoTrans, CblasNoTrans, dx.rows(), dx.columns(), dy.columns(), dy, dy.columns(), w,
                 w.columns(), dx);
    }

    void linear_backward_parameters(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                    const Tensor& db) override {
        if (failure_) return;
        multiply(CblasTrans, CblasNoTrans, dw.rows(), dw.columns(), dy.rows(), dy, dy.columns(), x,
                 x.columns(), dw);
        const std::int64_t n = dy.columns();
        float* sum = db.data<float>();
        std::fill_n(sum, n, 0.0f);
        for (std::int64_t r = 0; r < dy.rows(); ++r) {
            const float* row = dy.data<float>() + r * n;
            for (std::int64_t c = 0; c < n; ++c) sum[c] += row[c];
        }
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

    void max_pool(ImageShape shape, const Tensor& x, const Tensor& y, const Tensor& picked) override {
        if (failure_) return;
        const float* in = x.data<float>();
        float* out = y.data<float>();
        auto* which = picked.data<std::uint8_t>();
        for_each_window(shape, y.rows(), [&](std::int64_t from, std::int64_t to) {
            const std::int64_t corners[] = {from, from + 1, from + shape.width, from + shape.width + 1};
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
        for_each_window(shape, dy.rows(), [&](std::int64_t from, std::int64_t to) {
            const std::uint8_t best = picked.data<std::uint8_t>()[to];
            dx.data<float>()[from + best % 2 + best / 2 * shape.width] = dy.data<float>()[to];
        });
    }

    void dropout(const Tensor& x, Dropout dropout, const Tensor& y) override {
        if (failure_) return;
        const float* in = x.data<float>();
        float* out = y.data<float>();
        const float scale = 1 / (1 - dropout.rate);
        const std::int64_t columns = x.columns();
        for (std::int64_t i = 0, count = x.elements(); i < count; ++i)
            out[i] = is_kept(dropout, columns, i) ? in[i] * scale : 0.0f;
    }

    void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override {
        if (failure_) return;
        const float *value = y.data<float>(), *in = dy.data<float>();
        float* out = dx.data<float>();
        for (std::int64_t i = 0, count = y.elements(); i < count; ++i) out[i] = value[i] > 0 ? in[i] : 0.0f;
    }

    void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float scale, const Tensor& metrics,
                               const Tensor& d_logits) override {
        if (failure_) return;
        const std::int64_t classes = logits.columns();
        for (std::int64_t r = 0; r < logits.rows(); ++r) {
            const float* row = logits.data<float>() + r * classes;
            const std::int32_t label = labels.data<std::int32_t>()[r];
            const std::int64_t best = std::max_element(row, row + classes) - row;
            float total = 0;
            for (std::int64_t c = 0; c < classes; ++c) total += std::exp(row[c] - row[best]);
            metrics.data<double>()[0] += std::log(total) - (row[label] - row[best]);
            metrics.data<double>()[1] += best == label ? 1 : 0;
            if (!d_logits) continue;
            float* out = d_logits.data<float>() + r * classes;
            for (std::int64_t c = 0; c < classes; ++c) {
                out[c] = scale * (std::exp(row[c] - row[best]) / total - (c == label ? 1.0f : 0.0f));
            }
        }
    }

    void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                       const Tensor& d_prediction) override {
        if (failure_) return;
        const auto columns = static_cast<float>(prediction.columns());
        for (std::int64_t i = 0, count = prediction.elements(); i < count; ++i) {
            const float difference = prediction.data<float>()[i] - target.data<float>()[i];
            metrics.data<double>()[0] += static_cast<double>(difference) * difference / columns;
            if (d_prediction) d_prediction.data<float>()[i] = scale * 2 * difference / columns;
        }
    }

    void add(const Tensor& x, const Tensor& y) override {
        if (failure_) return;
        const float* __restrict in = x.data<float>();
        float* __restrict out = y.data<float>();
        for (std::int64_t i = 0, count = x.elements(); i < count; ++i) out[i] += in[i];
    }
    void scale(const Tensor& x, float factor) override {
        if (failure_) return;
        float* values = x.data<float>();
        for (std::int64_t i = 0, count = x.elements(); i < count; ++i) values[i] *= factor;
    }
    void square_sum(const Tensor& x, const Tensor& sums) override {
        if (failure_) return;
        const float* values = x.data<float>();
        double sum = 0;
        for (std::int64_t i = 0, count = x.elements(); i < count; ++i)
            sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        sums.data<double>()[0] = sum;
    }

    void sgd(const Tensor& parameters, const Tensor& gradients, const Tensor& velocity,
             SgdStep step) override {
        if (failure_) return;
        float* __restrict p = parameters.data<float>(), * __restrict u = velocity.data<float>();
        const float* __restrict g = gradients.data<float>();
        for (std::int64_t i = 0, count = parameters.elements(); i < count; ++i) {
            u[i] = step.momentum * u[i] + g[i] + step.decay * p[i];
            p[i] -= step.rate * u[i];
        }
    }

    void adam(const Tensor& parameters, const Tensor& gradients, const Tensor& m, const Tensor& v,
              AdamStep step) override {
        if (failure_) return;
        float* __restrict p = parameters.data<float>(), * __restrict first = m.data<float>();
        float* __restrict second = v.data<float>();
        const float* __restrict g = gradients.data<float>();
        for (std::int64_t i = 0, count = parameters.elements(); i < count; ++i) {
            first[i] = step.beta1 * first[i] + (1 - step.beta1) * g[i];
            second[i] = step.beta2 * second[i] + (1 - step.beta2) * g[i] * g[i];
            p[i] = step.keep * p[i] -
                   step.rate * first[i] / (std::sqrt(second[i]) * step.root_scale + step.epsilon);
        }
    }

 private:
    int threads_;
    std::optional<Error> failure_;
    CpuConvolutions convolutions_;

    void keep(const std::optional<std::string>& problem) {
        if (problem) failure_ = Error{Fault::device, "cpu: " + *problem};
    }

    // Of each 2 x 2 numbers of x: where the first one lies, and where y's is.
    template <typename Work>
    static void for_each_window(ImageShape x, std::int64_t rows, Work work) {
        const std::int64_t height = x.height / 2, width = x.width / 2;
        std::int64_t to = 0;
        for (std::int64_t plane = 0; plane < rows * x.channels; ++plane)
            for (std::int64_t line = 0; line < height; ++line)
                for (std::int64_t column = 0; column < width; ++column)
                    work((plane * x.height + 2 * line) * x.width + 2 * column, to++);
    }

    template <typename In>
    static void affine_row(const In* in, std::int64_t count, Affine affine, float* out) {
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = static_cast<float>(in[i]) * affine.scale + affine.shift;
    }

    // c [rows, columns] = op(a) op(b), summed over `inner`; lda and ldb are the row lengths as stored.
    static void multiply(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, std::int64_t rows, std::int64_t columns,
                         std::int64_t inner, const Tensor& a, std::int64_t lda, const Tensor& b,
                         std::int64_t ldb, const Tensor& c) {
        auto small = [](std::int64_t value) { return static_cast<blasint>(value); };
        cblas_sgemm(CblasRowMajor, op_a, op_b, small(rows), small(columns), small(inner), 1.0f,
                    a.data<float>(), small(lda), b.data<float>(), small(ldb), 0.0f, c.data<float>(),
                    small(columns));
    }
};

}  // namespace

std::unique_ptr<Device> open_cpu(int threads) {
    return std::make_unique<Cpu>(threads);
}

}  // namespace dp::trainer
