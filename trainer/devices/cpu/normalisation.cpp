// SPDX-License-Identifier: Apache-2.0
//
// Layer norm of the CPU device, and batch norm and biases of the channels of images.
#include <algorithm>
#include <cmath>

#include "trainer/devices/cpu/numbers.hpp"
#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer::cpu {
namespace {

// Sums of a few thousand numbers are in float32, in several lanes; sums of such sums are in float64.
constexpr std::int64_t kRun = 4096;

// Exact to float32's rounding for any count.
template <typename Number>
DP_WIDE_VECTORS double sum_of(const Number* x, std::int64_t count) {
    double total = 0;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += wide(x[i]);
        total += static_cast<double>(sum);
    }
    return total;
}

template <typename Number>
DP_WIDE_VECTORS double squares_around(const Number* x, std::int64_t count, float middle) {
    double total = 0;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += (wide(x[i]) - middle) * (wide(x[i]) - middle);
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
template <typename Number>
DP_WIDE_VECTORS Sums moments_of(const Number* x, std::int64_t count) {
    Sums total;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = from; i < end; ++i) sum += wide(x[i]);
        const auto length = static_cast<double>(end - from), all = static_cast<double>(sum);
        const auto middle = static_cast<float>(all / length);
#pragma omp simd reduction(+ : squares)
        for (std::int64_t i = from; i < end; ++i) squares += (wide(x[i]) - middle) * (wide(x[i]) - middle);
        const auto mean = static_cast<double>(middle);
        total += {all, static_cast<double>(squares) + mean * (2 * all - length * mean)};
    }
    return total;
}

template <typename Number>
DP_WIDE_VECTORS void layer_norm_row(const Number* x, const float* w, const float* b, std::int64_t columns,
                                    float mean, float scale, Number* y) {
    for (std::int64_t c = 0; c < columns; ++c) store((wide(x[c]) - mean) * scale * w[c] + b[c], y[c]);
}

template <typename Number>
DP_WIDE_VECTORS void layer_norm_row_backward(const Number* x, const float* w, const Number* dy,
                                             std::int64_t columns, float mean, float scale, Number* dx) {
    float gradient = 0, product = 0;  // means of dy w and of dy w x̂
#pragma omp simd reduction(+ : gradient, product)
    for (std::int64_t c = 0; c < columns; ++c) {
        gradient += wide(dy[c]) * w[c];
        product += wide(dy[c]) * w[c] * ((wide(x[c]) - mean) * scale);
    }
    gradient /= static_cast<float>(columns);
    product /= static_cast<float>(columns);
    for (std::int64_t c = 0; c < columns; ++c)
        store(wide(dx[c]) + scale * (wide(dy[c]) * w[c] - gradient - (wide(x[c]) - mean) * scale * product),
              dx[c]);
}

template <typename Number>
DP_WIDE_VECTORS void add_row_products(const Number* x, const Number* dy, std::int64_t count, float mean,
                                      float scale, float* dw, float* db) {
    for (std::int64_t c = 0; c < count; ++c) {
        dw[c] += wide(dy[c]) * ((wide(x[c]) - mean) * scale);
        db[c] += wide(dy[c]);
    }
}

template <typename Number>
DP_WIDE_VECTORS void scale_plane(const Number* x, std::int64_t count, float factor, float shift, bool relu,
                                 Number* y) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = wide(x[i]) * factor + shift;
        store(relu && value < 0 ? 0.0f : value, y[i]);  // NaN stays
    }
}

// dx becomes dy, or zero where ReLU held y at zero; Σ dx and Σ dx x̂.
template <typename Number>
DP_WIDE_VECTORS Sums mask_and_sum(const Number* x, const Number* y, const Number* dy, std::int64_t count,
                                  float mean, float scale, bool relu, Number* dx) {
    Sums total;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = std::min(count, from + kRun);
        float gradient = 0, product = 0;
#pragma omp simd reduction(+ : gradient, product)
        for (std::int64_t i = from; i < end; ++i) {
            const float here = !relu || wide(y[i]) > 0 ? wide(dy[i]) : 0.0f;
            store(here, dx[i]);
            gradient += here;
            product += here * ((wide(x[i]) - mean) * scale);
        }
        total += {static_cast<double>(gradient), static_cast<double>(product)};
    }
    return total;
}

template <typename Number>
DP_WIDE_VECTORS void finish_gradient(const Number* x, std::int64_t count, float mean, float scale,
                                     float factor, float gradient, float product, Number* dx) {
    for (std::int64_t i = 0; i < count; ++i)
        store(factor * (wide(dx[i]) - gradient - (wide(x[i]) - mean) * scale * product), dx[i]);
}

template <typename Number>
DP_WIDE_VECTORS void add_to_plane(float number, std::int64_t count, Number* y) {
    for (std::int64_t i = 0; i < count; ++i) store(wide(y[i]) + number, y[i]);
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
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        planes.of(channel, [&](std::int64_t at) {
            scale_plane(x.data<Number>() + at, planes.numbers, factor, shift, norm.relu,
                        y.data<Number>() + at);
        });
    });
}

}  // namespace

void layer_norm(In x, In w, In b, Out y, Out saved) {
    const std::int64_t columns = x.columns();
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_item(x.rows(), kWorthAThread / columns, [&](std::int64_t r) {
            const Number* row = x.data<Number>() + r * columns;
            const auto mean = static_cast<float>(sum_of(row, columns) / static_cast<double>(columns));
            const double variance = squares_around(row, columns, mean) / static_cast<double>(columns);
            const auto scale = static_cast<float>(1 / std::sqrt(variance + kNormEpsilon));
            saved.data<float>()[2 * r] = mean;
            saved.data<float>()[2 * r + 1] = scale;
            layer_norm_row(row, w.data<float>(), b.data<float>(), columns, mean, scale,
                           y.data<Number>() + r * columns);
        });
    });
}

void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) {
    const std::int64_t columns = x.columns(), rows = x.rows();
    const float* s = saved.data<float>();
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_item(rows, kWorthAThread / columns, [&](std::int64_t r) {
            layer_norm_row_backward(x.data<Number>() + r * columns, w.data<float>(),
                                    dy.data<Number>() + r * columns, columns, s[2 * r], s[2 * r + 1],
                                    dx.data<Number>() + r * columns);
        });
        // Each thread sums all rows of its columns: the same bits for any number of threads.
        for_each_part(columns, kWorthAThread / rows, [&](std::int64_t first, std::int64_t last) {
            float *w_sum = dw.data<float>() + first, *b_sum = db.data<float>() + first;
            std::fill_n(w_sum, last - first, 0.0f);
            std::fill_n(b_sum, last - first, 0.0f);
            for (std::int64_t r = 0; r < rows; ++r)
                add_row_products(x.data<Number>() + r * columns + first,
                                 dy.data<Number>() + r * columns + first, last - first, s[2 * r],
                                 s[2 * r + 1], w_sum, b_sum);
        });
    });
}

void add_channels(ImageShape shape, In b, InOut y) {
    const std::int64_t plane = shape.height * shape.width;
    in_type_of(y, [&](auto number) {
        using Number = decltype(number);
        for_each_item(y.rows() * shape.channels, kWorthAThread / plane, [&](std::int64_t p) {
            add_to_plane(wide(b.data<Number>()[p % shape.channels]), plane, y.data<Number>() + p * plane);
        });
    });
}

void sum_channels(ImageShape shape, In dy, Out db) {
    const Planes planes(shape, dy.rows());
    in_type_of(dy, [&](auto number) {
        using Number = decltype(number);
        for_each_item(shape.channels, 1, [&](std::int64_t c) {
            double sum = 0;
            planes.of(c, [&](std::int64_t at) { sum += sum_of(dy.data<Number>() + at, planes.numbers); });
            db.data<float>()[c] = static_cast<float>(sum);
        });
    });
}

void batch_norm_sums(const BatchNorm& norm, In x, Out sums) {
    const Planes planes(norm.x, x.rows());
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
            Sums total;
            planes.of(c,
                      [&](std::int64_t at) { total += moments_of(x.data<Number>() + at, planes.numbers); });
            sums.data<double>()[c] = total.first;
            sums.data<double>()[norm.x.channels + c] = total.second;
        });
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
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
            const float mean = saved.data<float>()[c], scale = saved.data<float>()[channels + c];
            Sums total;
            planes.of(c, [&](std::int64_t at) {
                total += mask_and_sum(x.data<Number>() + at, y.data<Number>() + at, dy.data<Number>() + at,
                                      planes.numbers, mean, scale, norm.relu, dx.data<Number>() + at);
            });
            sums.data<double>()[c] = total.first;
            sums.data<double>()[channels + c] = total.second;
            db.data<float>()[c] = static_cast<float>(total.first);
            dw.data<float>()[c] = static_cast<float>(total.second);
        });
    });
}

void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows, InOut dx) {
    const Planes planes(norm.x, x.rows());
    const std::int64_t channels = norm.x.channels;
    const double count = planes.count(rows);
    in_type_of(x, [&](auto number) {
        using Number = decltype(number);
        for_each_item(norm.x.channels, 1, [&](std::int64_t c) {
            const float mean = saved.data<float>()[c], scale = saved.data<float>()[channels + c];
            const auto gradient = static_cast<float>(sums.data<double>()[c] / count),
                       product = static_cast<float>(sums.data<double>()[channels + c] / count);
            planes.of(c, [&](std::int64_t at) {
                finish_gradient(x.data<Number>() + at, planes.numbers, mean, scale,
                                w.data<float>()[c] * scale, gradient, product, dx.data<Number>() + at);
            });
        });
    });
}

}  // namespace dp::trainer::cpu
