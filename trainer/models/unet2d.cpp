// SPDX-License-Identifier: Apache-2.0
//
// unet2d: a U-Net (Ronneberger et al. 2015) with batch norm, as used by Buda et al. 2019: four levels down
// and up, each of two 3x3 convolutions, with 32 channels on the first (7,763,041 parameters). Three channels
// in, one logit per pixel out; the loss is one minus Dice's coefficient of each image. Batch norm is
// synchronised over all ranks, so that a batch teaches the same on any number of ranks.
#include <deque>

#include "trainer/models/layers.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kColours = 3;
constexpr int kLevels = 4;

// ReLU(batch norm(x * w)).
class ConvolutionNormLayer : public Layer {
 public:
    ConvolutionNormLayer(ParameterSet& parameters, const SyncBatchNorm& whole, const std::string& name,
                         ImageShape x, std::int64_t outputs)
        : Layer(Convolution{x, outputs, 3, 1}.y().numbers()),
          parameters_(&parameters),
          whole_(&whole),
          shape_{x, outputs, 3, 1},
          norm_{shape_.y(), true},
          kernel_(&parameters.add(name + ".weight", {outputs, x.channels, 3, 3},
                                  Initial::by_inputs(9 * x.channels))),
          weight_(&parameters.add(name + ".norm.weight", {outputs}, Initial::constant(1))),
          bias_(&parameters.add(name + ".norm.bias", {outputs}, Initial::constant(0))),
          running_(&parameters.add_buffer(name + ".norm.running", {2, outputs}, beginning(outputs))) {}

    void place(Device& device, std::int64_t rows, Type type) override {
        Layer::place(device, rows, type);
        convolved_ = device.make(type, {rows, outputs()});
        saved_ = device.make(Type::f32, {2, shape_.outputs});
        sums_ = device.make(Type::f64, {2, shape_.outputs});
    }

    // `trains`: use the batch's statistics, not the running ones.
    Tensor forward(const Tensor& x, bool trains) {
        const Tensor convolved = convolved_.first_rows(x.rows()), y = output(x.rows());
        device_->convolve(shape_, x, kernel_->compute_copy, {}, Activation::none, convolved);
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
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows()), convolved = convolved_.first_rows(x.rows());
        device_->batch_norm_backward_sums(norm_, convolved, output(x.rows()), saved_, dy, dy, sums_,
                                          weight_->gradient, bias_->gradient);
        add_up_sums();
        device_->batch_norm_backward(norm_, convolved, weight_->value, saved_, sums_, whole_->rows(x), dy);
        device_->convolve_backward_parameters(shape_, dy, x, kernel_->gradient, {});
        parameters_->completed(*kernel_);
        if (dx) device_->convolve_backward_input(shape_, dy, kernel_->compute_copy, dx);
    }

    ImageShape shape() const { return shape_.y(); }
    std::optional<Convolution> convolution() const override { return shape_; }
    std::int64_t activations_per_sample() const override { return 3 * outputs(); }
    double forward_flops_per_sample() const override {
        return 2.0 * static_cast<double>(outputs() * shape_.x.channels * 9);
    }
    // The convolution, or the norm's backward pass.
    std::int64_t widest_operation(std::int64_t rows) const override {
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
    Tensor convolved_, saved_, sums_;

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

struct DoubleLayer {
    DoubleLayer(ParameterSet& parameters, const SyncBatchNorm& whole, const std::string& name, ImageShape x,
                std::int64_t outputs)
        : first(parameters, whole, name + "conv1", x, outputs),
          second(parameters, whole, name + "conv2", first.shape(), outputs) {}
    ConvolutionNormLayer first, second;

    Tensor forward(const Tensor& x, bool trains) { return second.forward(first.forward(x, trains), trains); }
    void backward(const Tensor& x, const Tensor& dx) {
        second.backward(first.output(x.rows()), first.gradient(x.rows()));
        first.backward(x, dx);
    }
};

// A 2x2 transposed convolution of stride 2: doubles the side, halves the channels; the adjoint of `shape_`.
class UpLayer : public Layer {
 public:
    // Initial values as in PyTorch, which here goes by the outputs of an input, not the inputs of an output.
    UpLayer(ParameterSet& parameters, const std::string& name, ImageShape x)
        : Layer(2 * x.numbers()),
          parameters_(&parameters),
          shape_{{x.channels / 2, 2 * x.height, 2 * x.width}, x.channels, 2, 0, 2},
          kernel_(&parameters.add(name + ".weight", {x.channels, x.channels / 2, 2, 2},
                                  Initial::by_inputs(2 * x.channels))),
          bias_(&parameters.add(name + ".bias", {x.channels / 2}, Initial::by_inputs(2 * x.channels))) {}

    Tensor forward(const Tensor& x) {
        const Tensor y = output(x.rows());
        device_->convolve_backward_input(shape_, x, kernel_->compute_copy, y);
        device_->add_channels(shape_.x, bias_->compute_copy, y);
        return y;
    }
    void backward(const Tensor& x, const Tensor& dx) {
        const Tensor dy = gradient(x.rows());
        device_->convolve_backward_parameters(shape_, x, dy, kernel_->gradient, {});
        device_->sum_channels(shape_.x, dy, bias_->gradient);
        parameters_->completed(*kernel_);
        device_->convolve(shape_, dy, kernel_->compute_copy, {}, Activation::none, dx);
    }

    ImageShape shape() const { return shape_.x; }
    std::optional<Convolution> convolution() const override { return shape_; }
    double forward_flops_per_sample() const override {
        return 2.0 * static_cast<double>(outputs() * shape_.outputs);
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        return rows * (shape_.y().numbers() + outputs()) + 4 * shape_.x.channels * shape_.outputs;
    }

 private:
    const ParameterSet* parameters_;
    Convolution shape_;
    Parameter *kernel_, *bias_;
};

// Two images of one shape: the channels of the first, then those of the second.
class JoinLayer : public Layer {
 public:
    explicit JoinLayer(ImageShape one) : Layer(2 * one.numbers()), one_(one.numbers()) {}

    Tensor forward(const Tensor& first, const Tensor& second) {
        const Tensor y = output(first.rows());
        device_->copy_columns(first, 0, y, 0, one_, Write::set);
        device_->copy_columns(second, 0, y, one_, one_, Write::set);
        return y;
    }
    void backward_first(const Tensor& dx) {
        device_->copy_columns(gradient(dx.rows()), 0, dx, 0, one_, Write::set);
    }
    // Adds: the second image is read elsewhere, too.
    void backward_second(const Tensor& dx) {
        device_->copy_columns(gradient(dx.rows()), one_, dx, 0, one_, Write::add);
    }

    std::int64_t widest_operation(std::int64_t rows) const override { return 3 * rows * one_; }

 private:
    std::int64_t one_;
};

// A level, with its encoder and decoder layers.
struct Level {
    DoubleLayer down;
    MaxPoolLayer pool;
    UpLayer up;
    JoinLayer both;  // up's channels, then down's
    DoubleLayer merged;
};

class Unet2d final : public LayeredModel {
 public:
    explicit Unet2d(const ModelShape& shape)
        : LayeredModel(kColours * shape.image_size * shape.image_size),
          image_size_(shape.image_size),
          features_(shape.features) {
        ImageShape x{kColours, image_size_, image_size_};
        std::vector<DoubleLayer> down;
        for (int level = 0; level < kLevels; ++level) {
            down.emplace_back(parameters_, whole_batch_, "enc" + std::to_string(level + 1), x,
                              features_ << level);
            x = down.back().second.shape();
            x.height /= 2;
            x.width /= 2;
        }
        bottom_.emplace(parameters_, whole_batch_, "bottleneck", x, features_ << kLevels);
        x = bottom_->second.shape();
        for (int level = kLevels; level-- > 0;) {
            const std::string number = std::to_string(level + 1);
            const DoubleLayer& encoder = down[static_cast<std::size_t>(level)];
            UpLayer up(parameters_, "upconv" + number, x);
            ImageShape both = up.shape();
            both.channels *= 2;
            DoubleLayer merged(parameters_, whole_batch_, "dec" + number, both, features_ << level);
            x = merged.second.shape();
            levels_.push_front(
                {encoder, MaxPoolLayer(encoder.second.shape()), up, JoinLayer(up.shape()), merged});
        }
        last_.emplace(parameters_, "conv", Convolution{x, 1, 1, 0}, Activation::none);

        layers_ = {&bottom_->first, &bottom_->second, &*last_};
        for (Level& level : levels_)
            layers_.insert(layers_.end(), {&level.down.first, &level.down.second, &level.pool, &level.up,
                                           &level.both, &level.merged.first, &level.merged.second});
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        device_->sigmoid_dice(forward(batch.x, false), batch.target, 0, metrics, {});
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        const auto rows = batch.x.rows();
        const Tensor logits = forward(batch.x, true);
        device_->sigmoid_dice(logits, batch.target, scale, metrics, last_->gradient(rows));

        const Layer& top = levels_[0].merged.second;
        last_->backward(top.output(rows), top.gradient(rows));
        for (std::size_t number = 0; number < kLevels; ++number) {
            Level& level = levels_[number];
            const Layer& below = (number + 1 < kLevels ? levels_[number + 1].merged : *bottom_).second;
            level.merged.backward(level.both.output(rows), level.both.gradient(rows));
            level.both.backward_first(level.up.gradient(rows));
            level.up.backward(below.output(rows), below.gradient(rows));
        }
        bottom_->backward(levels_.back().pool.output(rows), levels_.back().pool.gradient(rows));
        for (std::size_t number = kLevels; number-- > 0;) {
            Level& level = levels_[number];
            const Tensor d_down = level.down.second.gradient(rows);
            level.pool.backward(d_down);
            level.both.backward_second(d_down);
            if (number > 0) {
                const Layer& above = levels_[number - 1].pool;
                level.down.backward(above.output(rows), above.gradient(rows));
            } else {
                level.down.backward(batch.x, {});
            }
        }
    }

    Tensor mask_logits(std::int64_t rows) const override { return last_->output(rows); }

    bool looks_at_whole_batch() const override { return true; }

    std::map<std::string, std::int64_t> shape() const override {
        return {{"image_size", image_size_}, {"init_features", features_}};
    }

 private:
    std::int64_t image_size_, features_;
    std::deque<Level> levels_;  // from the whole image down
    std::optional<DoubleLayer> bottom_;
    std::optional<ConvolutionLayer> last_;

    Tensor forward(const Tensor& images, bool trains) {
        Tensor x = images;
        for (auto& level : levels_) x = level.pool.forward(level.down.forward(x, trains));
        x = bottom_->forward(x, trains);
        for (std::size_t number = kLevels; number-- > 0;) {
            Level& level = levels_[number];
            const Tensor both = level.both.forward(level.up.forward(x), level.down.second.output(x.rows()));
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
