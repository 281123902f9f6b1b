// SPDX-License-Identifier: Apache-2.0
//
// Layer norm of the CPU device, and batch norm and biases of the channels of images.
#include <algorithm>
#include <cmath>

#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer::cpu {
namespace {

// Sums of a few thousand numbers are in float32, in several lanes; sums of such sums are in float64.
constexpr std::int64_t kRun = 4096;

// Exact to float32's rounding for any count.
DP_WIDE_VECTORS double sum_of(const float* x, std::int64_t count) {
    double total = 0;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += x[i];
        total += static_cast<double>(sum);
    }
    return total;
}

DP_WIDE_VECTORS double squares_around(const float* x, std::int64_t count, float middle) {
    double total = 0;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += (x[i] - middle) * (x[i] - middle);
        total += static_cast<double>(sum);
    }
    return total;
}

// Two sums over the same numbers.
struct Sums {
    double first = 0, second = 0;

    void operator+=(const Sums& more) {
        first += more.first;
        second += more.second;
    }
};

// Σ x and Σ x², the latter from the squares around each run's mean, which float32 can add up.
DP_WIDE_VECTORS Sums moments_of(const float* x, std::int64_t count) {
    Sums total;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += x[i];
        const auto length = static_cast<double>(end - from), all = static_cast<double>(sum);
        const auto middle = static_cast<float>(all / length);
#pragma omp simd reduction(+ : squares)
        for (std::int64_t i = from; i < end; ++i) squares += (x[i] - middle) * (x[i] - middle);
        const auto mean = static_cast<double>(middle);
        total += {all, static_cast<double>(squares) + mean * (2 * all - length * mean)};
    }
    return total;
}

DP_WIDE_VECTORS void layer_norm_row(const float* x, const float* w, const float* b, std::int64_t columns,
                                    float mean, float scale, float* y) {
    for (std::int64_t c = 0; c < columns; ++c) y[c] = (x[c] - mean) * scale * w[c] + b[c];
}

DP_WIDE_VECTORS void layer_norm_row_backward(const float* x, const float* w, const float* dy,
                                             std::int64_t columns, float mean, float scale, float* dx) {
    float gradient = 0, product = 0;  // means of dy w and of dy w x̂
#pragma omp simd reduction(+ : gradient, product)
    for (std::int64_t c = 0; c < columns; ++c) {
        gradient += dy[c] * w[c];
        product += dy[c] * w[c] * ((x[c] - mean) * scale);
    }
    gradient /= static_cast<float>(columns);
    product /= static_cast<float>(columns);
    for (std::int64_t c = 0; c < columns; ++c)
        dx[c] += scale * (dy[c] * w[c] - gradient - (x[c] - mean) * scale * product);
}

DP_WIDE_VECTORS void add_row_products(const float* x, const float* dy, std::int64_t count, float mean,
                                      float scale, float* dw, float* db) {
    for (std::int64_t c = 0; c < count; ++c) {
        dw[c] += dy[c] * ((x[c] - mean) * scale);
        db[c] += dy[c];
    }
}

DP_WIDE_VECTORS void scale_plane(const float* x, std::int64_t count, float factor, float shift, bool relu,
                                 float* y) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = x[i] * factor + shift;
        y[i] = !relu || value > 0 ? value : 0.0f;
    }
}

// dx becomes dy, or zero where ReLU held y at zero; Σ dx and Σ dx x̂.
DP_WIDE_VECTORS Sums mask_and_sum(const float* x, const float* y, const float* dy, std::int64_t count,
                                  float mean, float scale, bool relu, float* dx) {
    Sums total;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float gradient = 0, product = 0;
#pragma omp simd reduction(+ : gradient, product)
        for (std::int64_t i = from; i < end; ++i) {
            const float here = !relu || y[i] > 0 ? dy[i] : 0.0f;
            dx[i] = here;
            gradient += here;
            product += here * ((x[i] - mean) * scale);
        }
        total += {static_cast<double>(gradient), static_cast<double>(product)};
    }
    return total;
}

DP_WIDE_VECTORS void finish_gradient(const float* x, std::int64_t count, float mean, float scale,
                                     float factor, float gradient, float product, float* dx) {
    for (std::int64_t i = 0; i < count; ++i)
        dx[i] = factor * (dx[i] - gradient - (x[i] - mean) * scale * product);
}

// The planes of a channel are `step` numbers apart, one per sample.
struct Planes {
    Planes(ImageShape shape, std::int64_t samples)
        : rows(samples), numbers(shape.height * shape.width), step(shape.numbers()) {}
    std::int64_t rows, numbers, step;
    // The elements of a channel in that many samples.
    double count(std::int64_t samples) const { return static_cast<double>(samples * numbers); }
    // Calls work(the place of the plane's first number) for each plane of a channel.
    template <typename Work>
    void of(std::int64_t channel, Work work) const {
        for (std::int64_t row = 0; row < rows; ++row) work(row * step + channel * numbers);
    }
};

void scale_channel(const BatchNorm& norm, In x, std::int64_t channel, float factor, float shift, Out y) {
    const Planes planes(norm.x, x.rows());
    planes.of(channel, [&](std::int64_t at) {
        scale_plane(x.data<float>() + at, planes.numbers, factor, shift, norm.relu, y.data<float>() + at);
    });
}

}  // namespace

void layer_norm(In x, In w, In b, Out y, Out saved) {
    const std::int64_t columns = x.columns();
    for_each_item(x.rows(), kWorthAThread / columns, [&](std::int64_t r) {
        const float* row = x.data<float>() + r * columns;
        const auto mean = static_cast<float>(sum_of(row, columns) / static_cast<double>(columns));
        const double variance = squares_around(row, columns, mean) / static_cast<double>(columns);
        const auto scale = static_cast<float>(1 / std::sqrt(variance + kNormEpsilon));
        saved.data<float>()[2 * r] = mean;
        saved.data<float>()[2 * r + 1] = scale;
        layer_norm_row(row, w.data<float>(), b.data<float>(), columns, mean, scale,
                       y.data<float>() + r * columns);
    });
}

void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) {
    const std::int64_t columns = x.columns(), rows = x.rows();
    const float* s = saved.data<float>();
    for_each_item(rows, kWorthAThread / columns, [&](std::int64_t r) {
        layer_norm_row_backward(x.data<float>() + r * columns, w.data<float>(),
                                dy.data<float>() + r * columns, columns, s[2 * r], s[2 * r + 1],
                                dx.data<float>() + r * columns);
    });
    // Each thread sums all rows of its columns: the same bits for any number of threads.
    for_each_part(columns, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
        float *w_sum = dw.data<float>() + first, *b_sum = db.data<float>() + first;
        std::fill_n(w_sum, last - first, 0.0f);
        std::fill_n(b_sum, last - first, 0.0f);
        for (std::int64_t r = 0; r < rows; ++r)
            add_row_products(x.data<float>() + r * columns + first, dy.data<float>() + r * columns + first,
                             last - first, s[2 * r], s[2 * r + 1], w_sum, b_sum);
    });
}

void add_channels(ImageShape shape, In b, InOut y) {
    const std::int64_t plane = shape.height * shape.width;
    for_each_item(y.rows() * shape.channels, kWorthAThread / plane, [&](std::int64_t p) {
        float* numbers = y.data<float>() + p * plane;
        const float bias = b.data<float>()[p % shape.channels];
        for (std::int64_t i = 0; i < plane; ++i) numbers[i] += bias;
    });
}

void sum_channels(ImageShape shape, In dy, Out db) {
    const Planes planes(shape, dy.rows());
    for_each_item(shape.channels, 1, [&](std::int64_t c) {
        double sum = 0;
        planes.of(c, [&](std::int64_t at) { sum += sum_of(dy.data<float>() + at, planes.numbers); });
        db.data<float>()[c] = static_cast<float>(sum);
    });
}

void batch_norm_sums(const BatchNorm& norm, In x, Out sums) {
    const Planes planes(norm.x, x.rows());
    for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
        Sums total;
        planes.of(c, [&](std::int64_t at) { total += moments_of(x.data<float>() + at, planes.numbers); });
        sums.data<double>()[c] = total.first;
        sums.data<double>()[norm.x.channels + c] = total.second;
    });
}

void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running, Out saved,
                Out y) {
    const std::int64_t channels = norm.x.channels;
    const double count = Planes(norm.x, x.rows()).count(rows);
    for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
        const double middle = sums.data<double>()[c] / count;
        const double variance = std::max(sums.data<double>()[channels + c] / count - middle * middle, 0.0);
        const auto mean = static_cast<float>(middle),
                   scale = static_cast<float>(1 / std::sqrt(variance + kNormEpsilon));
        saved.data<float>()[c] = mean;
        saved.data<float>()[channels + c] = scale;
        // PyTorch's running variance is unbiased.
        const auto unbiased = static_cast<float>(variance * count / std::max(count - 1, 1.0));
        if (std::isfinite(mean) && std::isfinite(unbiased)) {
            float *running_mean = running.data<float>() + c, *running_variance = running_mean + channels;
            *running_mean += kNormMomentum * (mean - *running_mean);
            *running_variance += kNormMomentum * (unbiased - *running_variance);
        }
        const float factor = w.data<float>()[c] * scale;
        scale_channel(norm, x, c, factor, b.data<float>()[c] - mean * factor, y);
    });
}

void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) {
    for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
        const float mean = running.data<float>()[c], variance = running.data<float>()[norm.x.channels + c];
        const float factor = w.data<float>()[c] / std::sqrt(variance + kNormEpsilon);
        scale_channel(norm, x, c, factor, b.data<float>()[c] - mean * factor, y);
    });
}

void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums, Out dw,
                              Out db) {
    const Planes planes(norm.x, x.rows());
    const std::int64_t channels = norm.x.channels;
    for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
        const float mean = saved.data<float>()[c], scale = saved.data<float>()[channels + c];
        Sums total;
        planes.of(c, [&](std::int64_t at) {
            total += mask_and_sum(x.data<float>() + at, y.data<float>() + at, dy.data<float>() + at,
                                  planes.numbers, mean, scale, norm.relu, dx.data<float>() + at);
        });
        sums.data<double>()[c] = total.first;
        sums.data<double>()[channels + c] = total.second;
        db.data<float>()[c] = static_cast<float>(total.first);
        dw.data<float>()[c] = static_cast<float>(total.second);
    });
}

void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows, InOut dx) {
    const Planes planes(norm.x, x.rows());
    const std::int64_t channels = norm.x.channels;
    const double count = planes.count(rows);
    for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
        const float mean = saved.data<float>()[c], scale = saved.data<float>()[channels + c];
        const auto gradient = static_cast<float>(sums.data<double>()[c] / count),
                   product = static_cast<float>(sums.data<double>()[channels + c] / count);
        planes.of(c, [&](std::int64_t at) {
            finish_gradient(x.data<float>() + at, planes.numbers, mean, scale, w.data<float>()[c] * scale,
                            gradient, product, dx.data<float>() + at);
        });
    });
}

}  // namespace dp::trainer::cpu
