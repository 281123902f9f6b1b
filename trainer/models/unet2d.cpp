// SPDX-License-Identifier: Apache-2.0
//
// unet2d: a U-Net (Ronneberger et al. 2015) with batch norm, as used by Buda et al. 2019: four levels down
// and up, each of two 3x3 convolutions, with 32 channels on the first (7,763,041 parameters). Three channels
// in, one logit per pixel out; the loss is one minus Dice's coefficient of each image. Batch norm is
// synchronised over all ranks, so that a batch teaches the same on any number of ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "trainer/models/layers.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kColours = 3;
constexpr int kLevels = 4;

// ReLU(batch norm(x * w)).
class ConvolutionNormLayer {
 public:
    ConvolutionNormLayer(ParameterSet& parameters, const SyncBatchNorm& whole, const std::string& name,
                         ImageShape x, std::int64_t outputs)
        : parameters_(&parameters),
          whole_(&whole),
          shape_{x, outputs, 3, 1},
          norm_{shape_.y(), true},
          kernel_(&parameters.add(name + ".weight", {outputs, x.channels, 3, 3},
                                  Initial::even(1 / std::sqrt(static_cast<float>(9 * x.channels))))),
          weight_(&parameters.add(name + ".norm.weight", {outputs}, Initial::constant(1))),
          bias_(&parameters.add(name + ".norm.bias", {outputs}, Initial::constant(0))),
          running_(&parameters.add_buffer(name + ".norm.running", {2, outputs}, beginning(outputs))) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        convolved_ = device.make(type, {rows, outputs()});
        y_ = device.make(type, {rows, outputs()});
        dy_ = device.make(type, {rows, outputs()});
        saved_ = device.make(Type::f32, {2, shape_.outputs});
        sums_ = device.make(Type::f64, {2, shape_.outputs});
    }

    // `trains`: use the batch's statistics, not the running ones.
    Tensor forward(const Tensor& x, bool trains) {
        const Tensor convolved = convolved_.first_rows(x.rows()), y = output(x.rows());
        device_->convolve(shape_, x, kernel_->working, {}, Activation::none, convolved);
        if (trains) {
            device_->batch_norm_sums(norm_, convolved, sums_);
            add_up_sums();
            device_->batch_norm(norm_, convolved, sums_, whole_->rows(x), weight_->value, bias_->value,
                                running_->value, saved_, y);
        } else {
            device_->batch_norm_inference(norm_, convolved, weight_->value, bias_->value, running_->value, y);
        }
        return y;
    }
    Tensor output(std::int64_t rows) const { return y_.first_rows(rows); }
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows()), convolved = convolved_.first_rows(x.rows());
        device_->batch_norm_backward_sums(norm_, convolved, output(x.rows()), saved_, dy, dy, sums_,
                                          weight_->gradient, bias_->gradient);
        add_up_sums();
        device_->batch_norm_backward(norm_, convolved, weight_->value, saved_, sums_, whole_->rows(x), dy);
        device_->convolve_backward_parameters(shape_, dy, x, kernel_->gradient, {});
        parameters_->completed(*kernel_);
        if (dx) device_->convolve_backward_input(shape_, dy, kernel_->working, dx);
    }

    const Convolution& convolution() const { return shape_; }
    ImageShape shape() const { return shape_.y(); }
    std::int64_t outputs() const { return shape_.y().numbers(); }
    std::int64_t activations() const { return 3 * outputs(); }
    double forward_flops_per_sample() const {
        return 2.0 * static_cast<double>(outputs() * shape_.x.channels * 9);
    }
    // The convolution, or the norm's backward pass.
    std::int64_t widest_operation(std::int64_t rows) const {
        return std::max(rows * (shape_.x.numbers() + outputs()) + 9 * shape_.x.channels * shape_.outputs,
                        3 * rows * outputs());
    }

 private:
    const ParameterSet* parameters_;
    const SyncBatchNorm* whole_;
    Convolution shape_;
    BatchNorm norm_;
    Parameter *kernel_, *weight_, *bias_;
    Buffer* running_;
    Device* device_ = nullptr;
    Tensor convolved_, y_, dy_, saved_, sums_;

    void add_up_sums() const {
        if (whole_->ranks > 1) whole_->add_up(sums_);
    }

    // Initial statistics: means of 0 and variances of 1.
    static std::vector<float> beginning(std::int64_t channels) {
        std::vector<float> values(static_cast<std::size_t>(2 * channels), 0.0f);
        std::fill(values.begin() + channels, values.end(), 1.0f);
        return values;
    }
};

// Two of them.
class DoubleLayer {
 public:
    DoubleLayer(ParameterSet& parameters, const SyncBatchNorm& whole, const std::string& name, ImageShape x,
                std::int64_t outputs)
        : first_(parameters, whole, name + "conv1", x, outputs),
          second_(parameters, whole, name + "conv2", first_.shape(), outputs) {}

    void place(Device& device, std::int64_t rows, Type type) {
        first_.place(device, rows, type);
        second_.place(device, rows, type);
    }
    Tensor forward(const Tensor& x, bool trains) {
        return second_.forward(first_.forward(x, trains), trains);
    }
    Tensor output(std::int64_t rows) const { return second_.output(rows); }
    Tensor gradient(std::int64_t rows) const { return second_.gradient(rows); }
    void backward(const Tensor& x, const Tensor& dx) {
        second_.backward(first_.output(x.rows()), first_.gradient(x.rows()));
        first_.backward(x, dx);
    }

    std::array<Convolution, 2> convolutions() const { return {first_.convolution(), second_.convolution()}; }
    ImageShape shape() const { return second_.shape(); }
    std::int64_t activations() const { return first_.activations() + second_.activations(); }
    double forward_flops_per_sample() const {
        return first_.forward_flops_per_sample() + second_.forward_flops_per_sample();
    }
    std::int64_t widest_operation(std::int64_t rows) const {
        return std::max(first_.widest_operation(rows), second_.widest_operation(rows));
    }

 private:
    ConvolutionNormLayer first_, second_;
};

// A 2x2 transposed convolution of stride 2, which doubles the side and halves the channels. It is the adjoint
// of `shape_`, which goes from y to x.
class UpLayer {
 public:
    UpLayer(ParameterSet& parameters, const std::string& name, ImageShape x)
        : parameters_(&parameters),
          shape_{{x.channels / 2, 2 * x.height, 2 * x.width}, x.channels, 2, 0, 2},
          kernel_(&parameters.add(name + ".weight", {x.channels, x.channels / 2, 2, 2}, bound(x))),
          bias_(&parameters.add(name + ".bias", {x.channels / 2}, bound(x))) {}

    void place(Device& device, std::int64_t rows, Type type) {
        device_ = &device;
        y_ = device.make(type, {rows, outputs()});
        dy_ = device.make(type, {rows, outputs()});
    }
    Tensor forward(const Tensor& x) {
        const Tensor y = y_.first_rows(x.rows());
        device_->convolve_backward_input(shape_, x, kernel_->working, y);
        device_->add_channels(shape_.x, bias_->working, y);
        return y;
    }
    Tensor gradient(std::int64_t rows) const { return dy_.first_rows(rows); }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        device_->convolve_backward_parameters(shape_, x, dy, kernel_->gradient, {});
        device_->sum_channels(shape_.x, dy, bias_->gradient);
        parameters_->completed(*kernel_);
        device_->convolve(shape_, dy, kernel_->working, {}, Activation::none, dx);
    }

    const Convolution& convolution() const { return shape_; }
    ImageShape shape() const { return shape_.x; }
    std::int64_t outputs() const { return shape_.x.numbers(); }
    std::int64_t activations() const { return 2 * outputs(); }
    double forward_flops_per_sample() const { return 2.0 * static_cast<double>(outputs() * shape_.outputs); }
    std::int64_t widest_operation(std::int64_t rows) const {
        return rows * (shape_.y().numbers() + outputs()) + 4 * shape_.x.channels * shape_.outputs;
    }

 private:
    const ParameterSet* parameters_;
    Convolution shape_;
    Parameter *kernel_, *bias_;
    Device* device_ = nullptr;
    Tensor y_, dy_;

    // PyTorch uses the outputs per input element here, not the inputs per output element.
    static Initial bound(ImageShape x) {
        return Initial::even(1 / std::sqrt(static_cast<float>(2 * x.channels)));
    }
};

// A level, with its encoder and decoder layers.
struct Level {
    DoubleLayer down;
    MaxPoolLayer pool;
    UpLayer up;
    DoubleLayer merged;
    Tensor both, d_both;  // up's channels, then down's

    std::int64_t skipped() const { return down.shape().numbers(); }
};

class Unet2d final : public Model {
 public:
    explicit Unet2d(const ModelShape& shape) : image_{kColours, shape.image_size, shape.image_size} {
        ImageShape x = image_;
        features_ = shape.features;
        std::vector<DoubleLayer> down;
        for (int level = 0; level < kLevels; ++level) {
            down.emplace_back(parameters_, whole_batch_, "enc" + std::to_string(level + 1), x,
                              shape.features << level);
            x = down.back().shape();
            x.height /= 2;
            x.width /= 2;
        }
        bottom_.emplace(parameters_, whole_batch_, "bottleneck", x, shape.features << kLevels);
        x = bottom_->shape();
        for (int level = kLevels; level-- > 0;) {
            const std::string number = std::to_string(level + 1);
            UpLayer up(parameters_, "upconv" + number, x);
            ImageShape both = up.shape();
            both.channels *= 2;
            DoubleLayer merged(parameters_, whole_batch_, "dec" + number, both, shape.features << level);
            x = merged.shape();
            const auto& encoder = down[static_cast<std::size_t>(level)];
            levels_.push_front({encoder, MaxPoolLayer(encoder.shape()), up, merged, {}, {}});
        }
        last_.emplace(parameters_, "conv", Convolution{x, 1, 1, 0}, Activation::none);
    }

    void place(Device& device, std::uint64_t seed, std::int64_t rows, Type type) override {
        device_ = &device;
        parameters_.place(device, seed, type);
        for (auto& level : levels_) {
            level.down.place(device, rows, type);
            level.pool.place(device, rows, type);
            level.up.place(device, rows, type);
            level.merged.place(device, rows, type);
            level.both = device.make(type, {rows, 2 * level.skipped()});
            level.d_both = device.make(type, {rows, 2 * level.skipped()});
        }
        bottom_->place(device, rows, type);
        last_->place(device, rows, type);
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        device_->sigmoid_dice(forward(batch.x, false), batch.target, 0, metrics, {});
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        const auto rows = batch.x.rows();
        const Tensor logits = forward(batch.x, true);
        device_->sigmoid_dice(logits, batch.target, scale, metrics, last_->gradient(rows));

        last_->backward(levels_[0].merged.output(rows), levels_[0].merged.gradient(rows));
        for (std::size_t number = 0; number < kLevels; ++number) {
            Level& level = levels_[number];
            DoubleLayer& below = number + 1 < kLevels ? levels_[number + 1].merged : *bottom_;
            const Tensor both = level.both.first_rows(rows), d_both = level.d_both.first_rows(rows);
            level.merged.backward(both, d_both);
            device_->copy_columns(d_both, 0, level.up.gradient(rows), 0, level.skipped(), Write::set);
            level.up.backward(below.output(rows), below.gradient(rows));
        }
        bottom_->backward(levels_.back().pool.output(rows), levels_.back().pool.gradient(rows));
        for (std::size_t number = kLevels; number-- > 0;) {
            Level& level = levels_[number];
            level.pool.backward(level.down.gradient(rows));
            device_->copy_columns(level.d_both.first_rows(rows), level.skipped(), level.down.gradient(rows),
                                  0, level.skipped(), Write::add);
            if (number > 0) {
                level.down.backward(levels_[number - 1].pool.output(rows),
                                    levels_[number - 1].pool.gradient(rows));
            } else {
                level.down.backward(batch.x, {});
            }
        }
    }

    bool looks_at_whole_batch() const override { return true; }

    std::map<std::string, std::int64_t> shape() const override {
        return {{"image_size", image_.width}, {"init_features", features_}};
    }

    double forward_flops_per_sample() const override {
        double flops = bottom_->forward_flops_per_sample() + last_->forward_flops_per_sample();
        for (const auto& level : levels_)
            flops += level.down.forward_flops_per_sample() + level.up.forward_flops_per_sample() +
                     level.merged.forward_flops_per_sample();
        return flops;
    }
    std::int64_t activations_per_sample() const override {
        std::int64_t numbers =
            image_.numbers() + bottom_->activations() + 2 * last_->outputs() + statistics_per_sample();
        for (const auto& level : levels_)
            numbers += level.down.activations() + level.up.activations() + level.merged.activations() +
                       4 * level.skipped() + 2 * level.pool.outputs();
        return numbers;
    }
    std::int64_t statistics_per_sample() const override {
        std::int64_t numbers = 0;
        for (const auto& level : levels_) numbers += level.pool.outputs() / 4;  // a byte each
        return numbers;
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        std::int64_t widest = std::max(bottom_->widest_operation(rows), last_->widest_operation(rows));
        for (const auto& level : levels_)
            widest = std::max({widest, level.down.widest_operation(rows), level.pool.widest_operation(rows),
                               level.up.widest_operation(rows), level.merged.widest_operation(rows),
                               3 * rows * level.skipped()});  // copy_columns()
        return widest;
    }
    std::vector<Convolution> convolutions() const override {
        std::vector<Convolution> all{last_->convolution()};
        const auto add = [&](const DoubleLayer& layer) {
            for (const Convolution& one : layer.convolutions()) all.push_back(one);
        };
        add(*bottom_);
        for (const auto& level : levels_) {
            add(level.down);
            add(level.merged);
            all.push_back(level.up.convolution());
        }
        return all;
    }

 private:
    ImageShape image_;
    std::int64_t features_ = 0;
    Device* device_ = nullptr;
    std::deque<Level> levels_;  // from the whole image down
    std::optional<DoubleLayer> bottom_;
    std::optional<ConvolutionLayer> last_;

    Tensor forward(const Tensor& images, bool trains) {
        const auto rows = images.rows();
        Tensor x = images;
        for (auto& level : levels_) x = level.pool.forward(level.down.forward(x, trains));
        x = bottom_->forward(x, trains);
        for (std::size_t number = kLevels; number-- > 0;) {
            Level& level = levels_[number];
            const Tensor both = level.both.first_rows(rows);
            device_->copy_columns(level.up.forward(x), 0, both, 0, level.skipped(), Write::set);
            device_->copy_columns(level.down.output(rows), 0, both, level.skipped(), level.skipped(),
                                  Write::set);
            x = level.merged.forward(both, trains);
        }
        return last_->forward(x);
    }
};

}  // namespace

std::unique_ptr<Model> make_unet2d(const ModelShape& shape) {
    return std::make_unique<Unet2d>(shape);
}

}  // namespace dp::trainer
