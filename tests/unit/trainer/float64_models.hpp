// SPDX-License-Identifier: Apache-2.0
//
// gpt and unet2d in float64, written from their papers and not from the trainer's code: what losses and gradients on every device are
// compared with. By the parameters' names; laid out as the trainer has them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "trainer/models/model.hpp"

namespace dp::trainer::float64 {

using Values = std::vector<double>;
using Named = std::map<std::string, Values>;

// ---- gpt: Radford et al. 2019 ----------------------------------------------------------------------------------

inline Values layer_norm(const Values& x, const Values& gain, const Values& bias) {
    const auto count = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double value : x) mean += value / count;
    for (const double value : x) variance += (value - mean) * (value - mean) / count;
    Values y;
    for (std::size_t i = 0; i < x.size(); ++i)
        y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i]);
    return y;
}

// w [outputs, inputs]; b may be empty.
inline Values linear(const Values& x, const Values& w, const Values& b) {
    Values y(w.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] = b.empty() ? 0 : b[o];
        for (std::size_t i = 0; i < x.size(); ++i) y[o] += x[i] * w[o * x.size() + i];
    }
    return y;
}

inline double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

inline void add_to(Values& x, const Values& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

// What each token takes from itself and those before it; `qkv`: of each token its query, its key and its value, head by head.
inline std::vector<Values> attention(const std::vector<Values>& qkv, std::size_t heads) {
    const std::size_t width = qkv[0].size() / 3, size = width / heads;
    std::vector<Values> mixed(qkv.size(), Values(width));
    for (std::size_t query = 0; query < qkv.size(); ++query)
        for (std::size_t head = 0; head < heads; ++head) {
            Values weights;
            double total = 0;
            for (std::size_t key = 0; key <= query; ++key) {
                double score = 0;
                for (std::size_t i = head * size; i < (head + 1) * size; ++i)
                    score += qkv[query][i] * qkv[key][width + i];
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
                total += weights.back();
            }
            for (std::size_t key = 0; key <= query; ++key)
                for (std::size_t i = head * size; i < (head + 1) * size; ++i)
                    mixed[query][i] += weights[key] / total * qkv[key][2 * width + i];
        }
    return mixed;
}

inline double cross_entropy(const Values& logits, std::size_t label) {
    double total = 0;
    for (const double logit : logits) total += std::exp(logit - logits[label]);
    return std::log(total);
}

// The sum over the sequences of the mean over their tokens.
inline double gpt_loss(const Named& p, const GptShape& shape, const std::vector<std::int32_t>& tokens,
                       const std::vector<std::int32_t>& next) {
    const auto length = static_cast<std::size_t>(shape.sequence),
               width = static_cast<std::size_t>(shape.hidden);
    const auto weighted = [&](const std::string& name, const Values& x) {
        return linear(x, p.at(name + ".weight"), p.at(name + ".bias"));
    };
    const auto normed = [&](const std::string& name, const Values& x) {
        return layer_norm(x, p.at(name + ".weight"), p.at(name + ".bias"));
    };
    double sum = 0;
    for (std::size_t first = 0; first < tokens.size(); first += length) {
        std::vector<Values> stream;
        for (std::size_t t = 0; t < length; ++t) {
            const double* word = &p.at("wte")[static_cast<std::size_t>(tokens[first + t]) * width];
            stream.emplace_back(word, word + width);
            for (std::size_t i = 0; i < width; ++i) stream[t][i] += p.at("wpe")[t * width + i];
        }
        for (std::int64_t number = 0; number < shape.layers; ++number) {
            const std::string h = "h." + std::to_string(number);
            std::vector<Values> qkv;
            for (const Values& x : stream)
                qkv.push_back(weighted(h + ".attn.c_attn", normed(h + ".ln_1", x)));
            const auto mixed = attention(qkv, static_cast<std::size_t>(shape.heads));
            for (std::size_t t = 0; t < length; ++t) {
                add_to(stream[t], weighted(h + ".attn.c_proj", mixed[t]));
                Values up = weighted(h + ".mlp.c_fc", normed(h + ".ln_2", stream[t]));
                for (double& value : up) value = gelu(value);
                add_to(stream[t], weighted(h + ".mlp.c_proj", up));
            }
        }
        for (std::size_t t = 0; t < length; ++t)
            sum += cross_entropy(linear(normed("ln_f", stream[t]), p.at("wte"), {}),
                                 static_cast<std::size_t>(next[first + t]));
    }
    return sum / static_cast<double>(length);
}

// ---- unet2d: Ronneberger et al. 2015, with batch norm --------------------------------------------------------------

// [rows, channels, side, side]
struct Images {
    std::size_t rows, channels, side;
    Values values;

    Images(std::size_t images, std::size_t colours, std::size_t pixels)
        : rows(images), channels(colours), side(pixels), values(rows * channels * side * side) {}
    double& at(std::size_t row, std::size_t channel, std::size_t i, std::size_t j) {
        return values[((row * channels + channel) * side + i) * side + j];
    }
    double at(std::size_t row, std::size_t channel, std::size_t i, std::size_t j) const {
        return values[((row * channels + channel) * side + i) * side + j];
    }
    // Calls visit(row, channel, i, j) for each number.
    template <typename Visit>
    void each(Visit visit) const {
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t channel = 0; channel < channels; ++channel)
                for (std::size_t i = 0; i < side; ++i)
                    for (std::size_t j = 0; j < side; ++j) visit(row, channel, i, j);
    }
};

// A 3x3 convolution of padded images, w [outputs, channels, 3, 3]; batch norm by these images' own statistics; ReLU.
inline Images convolved(const Images& x, const std::string& name, const Named& p) {
    const Values &w = p.at(name + ".weight"), &gain = p.at(name + ".norm.weight"),
                 &bias = p.at(name + ".norm.bias");
    Images y(x.rows, gain.size(), x.side);
    y.each([&](auto row, auto o, auto i, auto j) {
        double sum = 0;
        for (std::size_t c = 0; c < x.channels; ++c)
            for (std::size_t k = 0; k < 9; ++k) {
                const std::size_t below = i + k / 3, right = j + k % 3;  // from the padded corner on
                if (below == 0 || right == 0 || below > x.side || right > x.side) continue;
                sum += w[(o * x.channels + c) * 9 + k] * x.at(row, c, below - 1, right - 1);
            }
        y.at(row, o, i, j) = sum;
    });
    Values mean(y.channels), variance(y.channels);
    const auto count = static_cast<double>(y.values.size() / y.channels);
    y.each([&](auto row, auto o, auto i, auto j) { mean[o] += y.at(row, o, i, j) / count; });
    y.each([&](auto row, auto o, auto i, auto j) {
        variance[o] += std::pow(y.at(row, o, i, j) - mean[o], 2) / count;
    });
    y.each([&](auto row, auto o, auto i, auto j) {
        double& value = y.at(row, o, i, j);
        value = std::max((value - mean[o]) / std::sqrt(variance[o] + 1e-5) * gain[o] + bias[o], 0.0);
    });
    return y;
}

inline Images twice_convolved(const Images& x, const std::string& name, const Named& p) {
    return convolved(convolved(x, name + "conv1", p), name + "conv2", p);
}

inline Images pooled(const Images& x) {
    Images y(x.rows, x.channels, x.side / 2);
    y.each([&](auto row, auto c, auto i, auto j) {
        y.at(row, c, i, j) = std::max({x.at(row, c, 2 * i, 2 * j), x.at(row, c, 2 * i, 2 * j + 1),
                                       x.at(row, c, 2 * i + 1, 2 * j), x.at(row, c, 2 * i + 1, 2 * j + 1)});
    });
    return y;
}

// A transposed 2x2 convolution of stride 2, w [channels, outputs, 2, 2], and behind its channels those of `other`.
inline Images doubled_and_joined(const Images& x, const std::string& name, const Named& p,
                                 const Images& other) {
    const Values &w = p.at(name + ".weight"), &bias = p.at(name + ".bias");
    const std::size_t outputs = bias.size();
    Images y(x.rows, outputs + other.channels, 2 * x.side);
    y.each([&](auto row, auto o, auto i, auto j) {
        if (o >= outputs) {
            y.at(row, o, i, j) = other.at(row, o - outputs, i, j);
            return;
        }
        double sum = bias[o];
        for (std::size_t c = 0; c < x.channels; ++c)
            sum += x.at(row, c, i / 2, j / 2) * w[(c * outputs + o) * 4 + i % 2 * 2 + j % 2];
        y.at(row, o, i, j) = sum;
    });
    return y;
}

// The sum over the images of one minus Dice's coefficient.
inline double unet2d_loss(const Named& p, Images x, const std::vector<float>& masks) {
    constexpr int kLevels = 4;
    std::vector<Images> down;
    for (int level = 1; level <= kLevels; ++level) {
        down.push_back(twice_convolved(x, "enc" + std::to_string(level), p));
        x = pooled(down.back());
    }
    x = twice_convolved(x, "bottleneck", p);
    for (int level = kLevels; level > 0; --level) {
        const std::string number = std::to_string(level);
        x = twice_convolved(
            doubled_and_joined(x, "upconv" + number, p, down[static_cast<std::size_t>(level) - 1]),
            "dec" + number, p);
    }
    double sum = 0;
    const std::size_t pixels = x.side * x.side;
    for (std::size_t row = 0; row < x.rows; ++row) {
        double both = 0, all = 0;
        for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
            double logit = p.at("conv.bias")[0];
            for (std::size_t c = 0; c < x.channels; ++c)
                logit += p.at("conv.weight")[c] * x.values[(row * x.channels + c) * pixels + pixel];
            const double share = 1 / (1 + std::exp(-logit));
            const auto mask = static_cast<double>(masks[row * pixels + pixel]);
            both += share * mask;
            all += share + mask;
        }
        sum += 1 - (2 * both + 1) / (all + 1);
    }
    return sum;
}

}  // namespace dp::trainer::float64
