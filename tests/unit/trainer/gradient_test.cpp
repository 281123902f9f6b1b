// SPDX-License-Identifier: Apache-2.0
//
// Every model's gradients, on every device, against finite differences of the same network in float64.
#include <algorithm>
#include <cmath>

#include "devices.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {
namespace {

// Layers that both models are made of, from the shapes of their parameters: weight, bias, weight, bias, ...
struct Reference {
    std::vector<Shape> shapes;
    std::vector<double> values;  // one parameter after another
    bool relu;                   // after every layer but the last

    std::vector<double> forward(std::vector<double> x) const {
        std::size_t at = 0;
        for (std::size_t layer = 0; layer + 1 < shapes.size(); layer += 2) {
            const auto outputs = static_cast<std::size_t>(shapes[layer][0]);
            const auto inputs = static_cast<std::size_t>(shapes[layer][1]);
            const double *w = &values[at], *b = w + outputs * inputs;
            std::vector<double> y(outputs);
            for (std::size_t n = 0; n < outputs; ++n) {
                y[n] = b[n];
                for (std::size_t k = 0; k < inputs; ++k) y[n] += x[k] * w[n * inputs + k];
                if (relu && layer + 2 < shapes.size()) y[n] = std::max(y[n], 0.0);
            }
            at += outputs * (inputs + 1);
            x = std::move(y);
        }
        return x;
    }
};

double cross_entropy(const std::vector<double>& logits, std::size_t label) {
    double total = 0;
    for (double logit : logits) total += std::exp(logit - logits[label]);
    return std::log(total);
}

class GradientTest : public OnEachDevice {
 protected:
    static constexpr std::int64_t kRows = 3;

    void check(const ModelInfo& info) {
        const auto model = info.make({});
        model->place(device(), 5, kRows + 2);  // more room than rows: the views must be right
        const std::int64_t features = model->parameters().all()[0].shape[1];
        const auto x = random_values(kRows * features, 21);
        const std::vector<std::int32_t> labels{3, 0, 9};
        const auto targets = random_values(kRows, 22);
        const Batch batch{upload(device(), {kRows, features}, x),
                          info.classifies ? device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels)
                                          : upload(device(), {kRows, 1}, targets),
                          {}};

        Reference reference{{}, {}, info.classifies};
        std::vector<float> gradients;
        constexpr float kScale = 0.5f;
        const Tensor metrics = device().make(Type::f64, {2});
        model->forward_backward(batch, kScale, metrics);
        for (const auto& parameter : model->parameters().all()) {
            reference.shapes.push_back(parameter.shape);
            const auto value = device().values_of<float>(parameter.value);
            const auto gradient = device().values_of<float>(parameter.gradient);
            reference.values.insert(reference.values.end(), value.begin(), value.end());
            gradients.insert(gradients.end(), gradient.begin(), gradient.end());
        }
        auto loss = [&] {
            double sum = 0;
            for (std::size_t r = 0; r < kRows; ++r) {
                const auto first = x.begin() + static_cast<std::ptrdiff_t>(r) * features;
                const auto y = reference.forward(std::vector<double>(first, first + features));
                if (info.classifies) {
                    sum += cross_entropy(y, static_cast<std::size_t>(labels[r]));
                } else {
                    sum += (y[0] - targets[r]) * (y[0] - targets[r]);
                }
            }
            return sum;
        };
        EXPECT_NEAR(device().values_of<double>(metrics)[0], loss(), 1e-5 * loss());
        const Tensor again = device().make(Type::f64, {2});
        model->evaluate(batch, again);
        EXPECT_EQ(device().values_of<double>(again), device().values_of<double>(metrics));

        // A few elements of every parameter, the first and the last among them.
        Random random(6, 0);
        std::size_t at = 0;
        int not_zero = 0;
        for (const auto& shape : reference.shapes) {
            const auto count = static_cast<std::size_t>(elements_of(shape));
            for (int i = 0; i < 12; ++i) {
                const std::size_t pick =
                    i == 0 ? 0 : (i == 1 ? count - 1 : random.below(static_cast<std::uint32_t>(count)));
                double& value = reference.values[at + pick];
                const double kept = value, step = 1e-5;
                value = kept + step;
                const double above = loss();
                value = kept - step;
                const double slope = kScale * (above - loss()) / (2 * step);
                value = kept;
                EXPECT_NEAR(static_cast<double>(gradients[at + pick]), slope, 2e-5 + 1e-4 * std::abs(slope))
                    << "element " << pick << " of the parameter of " << count;
                not_zero += std::abs(slope) > 1e-6 ? 1 : 0;
            }
            at += count;
        }
        EXPECT_GT(not_zero, 30) << "most slopes are zero: the test would prove nothing";
    }
};

// cnn in float64: what it is, in the order of its parameters.
class CnnReference {
 public:
    CnnReference(std::vector<double> values, const BatchDraw& draw)
        : values_(std::move(values)), draw_(draw) {}

    std::vector<double>& values() { return values_; }

    double loss(const std::vector<float>& x, const std::vector<std::int32_t>& labels) const {
        double sum = 0;
        for (std::size_t row = 0; row < labels.size(); ++row) {
            std::size_t at = 0;
            auto y = std::vector<double>(x.begin() + static_cast<std::ptrdiff_t>(row * 784),
                                         x.begin() + static_cast<std::ptrdiff_t>((row + 1) * 784));
            y = convolved(y, 1, 28, 32, at);
            y = convolved(y, 32, 26, 64, at);
            y = dropped(pooled(y, 64, 24), row, 0.25f, 1);
            y = dropped(layer(y, 128, true, at), row, 0.5f, 2);
            sum += cross_entropy(layer(y, 10, false, at), static_cast<std::size_t>(labels[row]));
        }
        return sum;
    }

 private:
    std::vector<double> values_;
    BatchDraw draw_;

    std::vector<double> convolved(const std::vector<double>& x, std::size_t channels, std::size_t side,
                                  std::size_t outputs, std::size_t& at) const {
        const double* w = &values_[at];
        const double* b = w + outputs * channels * 9;
        at += outputs * (channels * 9 + 1);
        const std::size_t out = side - 2;
        std::vector<double> y(outputs * out * out);
        for (std::size_t o = 0; o < outputs; ++o)
            for (std::size_t i = 0; i < out; ++i)
                for (std::size_t j = 0; j < out; ++j) {
                    double sum = b[o];
                    for (std::size_t c = 0; c < channels; ++c)
                        for (std::size_t k = 0; k < 9; ++k)
                            sum +=
                                x[(c * side + i + k / 3) * side + j + k % 3] * w[(o * channels + c) * 9 + k];
                    y[(o * out + i) * out + j] = std::max(sum, 0.0);
                }
        return y;
    }
    static std::vector<double> pooled(const std::vector<double>& x, std::size_t channels, std::size_t side) {
        std::vector<double> y;
        for (std::size_t c = 0; c < channels; ++c)
            for (std::size_t i = 0; i < side; i += 2)
                for (std::size_t j = 0; j < side; j += 2) {
                    const double* corner = &x[(c * side + i) * side + j];
                    y.push_back(std::max({corner[0], corner[1], corner[side], corner[side + 1]}));
                }
        return y;
    }
    std::vector<double> dropped(std::vector<double> x, std::size_t row, float rate,
                                std::uint64_t number) const {
        const Dropout dropout{rate, Random(draw_.key, number).bits(), draw_.first_row};
        const auto columns = static_cast<std::int64_t>(x.size());
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] *=
                is_kept(dropout, columns, static_cast<std::int64_t>(row * x.size() + i)) ? 1 / (1 - rate) : 0;
        return x;
    }
    std::vector<double> layer(const std::vector<double>& x, std::size_t outputs, bool relu,
                              std::size_t& at) const {
        const double* w = &values_[at];
        const double* b = w + outputs * x.size();
        at += outputs * (x.size() + 1);
        std::vector<double> y(outputs);
        for (std::size_t n = 0; n < outputs; ++n) {
            y[n] = b[n];
            for (std::size_t k = 0; k < x.size(); ++k) y[n] += x[k] * w[n * x.size() + k];
            if (relu) y[n] = std::max(y[n], 0.0);
        }
        return y;
    }
};

TEST_P(GradientTest, OfCnnAreThoseOfFiniteDifferencesWithTheSameNumbersDropped) {
    const auto model = find_model("cnn")->make({});
    model->place(device(), 5, 3);
    EXPECT_EQ(model->parameters().count(), 1'199'882) << "as PyTorch's MNIST example";
    const auto x = random_values(784, 23);
    const std::vector<std::int32_t> labels{3};
    const Batch batch{
        upload(device(), {1, 784}, x), device().copy_of<std::int32_t>(Type::i32, {1, 1}, labels), {4711, 8}};
    constexpr float kScale = 0.5f;
    const Tensor metrics = device().make(Type::f64, {2});
    model->forward_backward(batch, kScale, metrics);
    std::vector<double> values;
    std::vector<float> gradients;
    for (const auto& parameter : model->parameters().all()) {
        const auto value = device().values_of<float>(parameter.value);
        const auto gradient = device().values_of<float>(parameter.gradient);
        values.insert(values.end(), value.begin(), value.end());
        gradients.insert(gradients.end(), gradient.begin(), gradient.end());
    }
    CnnReference reference(values, batch.draw);
    const double loss = reference.loss(x, labels);
    EXPECT_NEAR(device().values_of<double>(metrics)[0], loss, 1e-5 * loss);

    Random random(6, 0);
    std::size_t at = 0;
    int not_zero = 0;
    for (const auto& parameter : model->parameters().all()) {
        const auto count = static_cast<std::size_t>(elements_of(parameter.shape));
        for (int i = 0; i < 3; ++i) {
            const std::size_t pick = at + (i == 0 ? 0 : random.below(static_cast<std::uint32_t>(count)));
            double& value = reference.values()[pick];
            const double kept = value, step = 1e-5;
            value = kept + step;
            const double above = reference.loss(x, labels);
            value = kept - step;
            const double slope = kScale * (above - reference.loss(x, labels)) / (2 * step);
            value = kept;
            EXPECT_NEAR(static_cast<double>(gradients[pick]), slope, 2e-5 + 1e-3 * std::abs(slope))
                << parameter.name << ", element " << pick - at;
            not_zero += std::abs(slope) > 1e-6 ? 1 : 0;
        }
        at += count;
    }
    EXPECT_GT(not_zero, 10) << "most slopes are zero: the test would prove nothing";

    // Without dropout nothing is left out: the loss is another one, and the same again.
    const Tensor first = device().make(Type::f64, {2}), again = device().make(Type::f64, {2});
    model->evaluate(batch, first);
    model->evaluate(batch, again);
    EXPECT_EQ(device().values_of<double>(first), device().values_of<double>(again));
    EXPECT_NE(device().values_of<double>(first)[0], device().values_of<double>(metrics)[0]);
}

TEST_P(GradientTest, OfFfnAreThoseOfFiniteDifferences) {
    check(*find_model("ffn"));
}
TEST_P(GradientTest, OfLinearAreThoseOfFiniteDifferences) {
    check(*find_model("linear"));
}

INSTANTIATE_ON_EACH_DEVICE(GradientTest);

}  // namespace
}  // namespace dp::trainer
