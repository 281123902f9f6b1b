// SPDX-License-Identifier: Apache-2.0
//
// oneDNN chooses the memory layout that suits its kernels; ours is plain (n, c, h, w), so operands are
// reordered on the way in and out where it chose another.
#include "trainer/devices/cpu/convolution.hpp"

#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <unordered_map>

namespace dp::trainer {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Argument = std::unordered_map<int, memory>;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

memory::desc plain(const memory::dims& dims, Tag tag) {
    return {dims, memory::data_type::f32, tag};
}
// Whatever suits.
memory::desc any(const memory::dims& dims) {
    return {dims, memory::data_type::f32, Tag::any};
}

// The dimensions of a convolution's operands for a batch.
struct Dimensions {
    Dimensions(const Convolution& c, std::int64_t rows)
        : x{rows, c.x.channels, c.x.height, c.x.width},
          w{c.outputs, c.x.channels, c.kernel, c.kernel},
          b{c.outputs},
          y{rows, c.outputs, c.y().height, c.y().width},
          strides{c.stride, c.stride},
          padding{c.padding, c.padding} {}
    memory::dims x, w, b, y;
    memory::dims strides;
    memory::dims padding;
};

// Of an operand that may be missing.
memory::desc bias_of(const Dimensions& d, bool biased) {
    return biased ? plain(d.b, Tag::x) : memory::desc();
}

// oneDNN 3 has done away with the operation descriptors of oneDNN 2.
dnnl::convolution_forward::primitive_desc describe_forward(const Dimensions& d, Activation activation,
                                                           bool biased, const dnnl::engine& engine) {
    constexpr auto kKind = dnnl::prop_kind::forward_training;
    dnnl::primitive_attr attributes;
    dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
    if (activation == Activation::relu) after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
    return {engine,   kKind,     kAlgorithm, any(d.x),  any(d.w),  bias_of(d, biased),
            any(d.y), d.strides, d.padding,  d.padding, attributes};
#else
    if (activation == Activation::relu) after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
    return {{kKind, kAlgorithm, any(d.x), any(d.w), bias_of(d, biased), any(d.y), d.strides, d.padding,
             d.padding},
            attributes,
            engine};
#endif
}

dnnl::convolution_backward_data::primitive_desc describe_backward_input(
    const Dimensions& d, const dnnl::convolution_forward::primitive_desc& forward,
    const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, kAlgorithm, any(d.x), any(d.w), any(d.y), d.strides, d.padding, d.padding, forward};
#else
    return {{kAlgorithm, any(d.x), any(d.w), any(d.y), d.strides, d.padding, d.padding}, engine, forward};
#endif
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_parameters(
    const Dimensions& d, bool biased, const dnnl::convolution_forward::primitive_desc& forward,
    const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine,   kAlgorithm, any(d.x),  any(d.w),  bias_of(d, biased),
            any(d.y), d.strides,  d.padding, d.padding, forward};
#else
    return {{kAlgorithm, any(d.x), any(d.w), bias_of(d, biased), any(d.y), d.strides, d.padding, d.padding},
            engine,
            forward};
#endif
}

// An operand: our memory, and where oneDNN wants another layout a copy of it.
class Operand {
 public:
    Operand() = default;
    Operand(const memory::desc& ours, const memory::desc& wanted, const dnnl::engine& engine)
        : ours_(ours, engine, nullptr), wanted_(ours == wanted ? ours_ : memory(wanted, engine)) {}

    // To be called before the primitive; of an output what stands there does not matter.
    const memory& take(const Tensor& tensor, bool is_input, dnnl::stream& stream) {
        ours_.set_data_handle(tensor.data<float>());
        if (!is_copied()) {
            wanted_.set_data_handle(tensor.data<float>());
        } else if (is_input) {
            dnnl::reorder(ours_, wanted_).execute(stream, ours_, wanted_);
        }
        return wanted_;
    }
    // Of an output, after it.
    void give_back(dnnl::stream& stream) {
        if (is_copied()) dnnl::reorder(wanted_, ours_).execute(stream, wanted_, ours_);
    }

 private:
    memory ours_;
    memory wanted_;

    bool is_copied() const { return wanted_.get_desc() != ours_.get_desc(); }
};

// One direction of one convolution for one size of batch.
struct Plan {
    dnnl::primitive primitive;
    Operand x, w, b, y;
};

enum class Direction { forward, backward_input, backward_parameters };
// `biased`: of the forward direction and of the parameters'.
using Key = std::tuple<Convolution, std::int64_t, Direction, Activation, bool>;

}  // namespace

struct CpuConvolutions::Prepared {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::map<Key, Plan> plans;

    Plan& plan(const Convolution& c, std::int64_t rows, Direction direction, Activation activation,
               bool biased) {
        const auto [place, is_new] = plans.try_emplace({c, rows, direction, activation, biased});
        if (is_new) place->second = prepare(Dimensions(c, rows), direction, activation, biased);
        return place->second;
    }

    Plan prepare(const Dimensions& d, Direction direction, Activation activation, bool biased) const {
        const auto forward = describe_forward(d, activation, biased, engine);
        const auto x = plain(d.x, Tag::nchw), w = plain(d.w, Tag::oihw), b = plain(d.b, Tag::x),
                   y = plain(d.y, Tag::nchw);
        switch (direction) {
            case Direction::forward:
                return {dnnl::convolution_forward(forward),
                        {x, forward.src_desc(), engine},
                        {w, forward.weights_desc(), engine},
                        biased ? Operand(b, forward.bias_desc(), engine) : Operand(),
                        {y, forward.dst_desc(), engine}};
            case Direction::backward_input: {
                const auto backward = describe_backward_input(d, forward, engine);
                return {dnnl::convolution_backward_data(backward),
                        {x, backward.diff_src_desc(), engine},
                        {w, backward.weights_desc(), engine},
                        {},
                        {y, backward.diff_dst_desc(), engine}};
            }
            case Direction::backward_parameters:
                break;
        }
        const auto backward = describe_backward_parameters(d, biased, forward, engine);
        return {dnnl::convolution_backward_weights(backward),
                {x, backward.src_desc(), engine},
                {w, backward.diff_weights_desc(), engine},
                biased ? Operand(b, backward.diff_bias_desc(), engine) : Operand(),
                {y, backward.diff_dst_desc(), engine}};
    }
};

namespace {

// oneDNN tells of failures by exceptions.
template <typename Work>
std::optional<std::string> told(Work work) {
    try {
        work();
        return std::nullopt;
    } catch (const dnnl::error& error) {
        return std::string("oneDNN: ") + error.what();
    }
}

}  // namespace

CpuConvolutions::CpuConvolutions() : prepared_(std::make_unique<Prepared>()) {}
CpuConvolutions::~CpuConvolutions() = default;

std::optional<std::string> CpuConvolutions::forward(const Convolution& c, const Tensor& x, const Tensor& w,
                                                    const Tensor& b, Activation activation, const Tensor& y) {
    return told([&] {
        auto& stream = prepared_->stream;
        Plan& plan = prepared_->plan(c, x.rows(), Direction::forward, activation, bool(b));
        Argument arguments{{DNNL_ARG_SRC, plan.x.take(x, true, stream)},
                           {DNNL_ARG_WEIGHTS, plan.w.take(w, true, stream)},
                           {DNNL_ARG_DST, plan.y.take(y, false, stream)}};
        if (b) arguments.emplace(DNNL_ARG_BIAS, plan.b.take(b, true, stream));
        plan.primitive.execute(stream, arguments);
        plan.y.give_back(stream);
        stream.wait();
    });
}

std::optional<std::string> CpuConvolutions::backward_input(const Convolution& c, const Tensor& dy,
                                                           const Tensor& w, const Tensor& dx) {
    return told([&] {
        auto& stream = prepared_->stream;
        Plan& plan = prepared_->plan(c, dy.rows(), Direction::backward_input, Activation::none, false);
        plan.primitive.execute(stream, Argument{{DNNL_ARG_DIFF_DST, plan.y.take(dy, true, stream)},
                                                {DNNL_ARG_WEIGHTS, plan.w.take(w, true, stream)},
                                                {DNNL_ARG_DIFF_SRC, plan.x.take(dx, false, stream)}});
        plan.x.give_back(stream);
        stream.wait();
    });
}

std::optional<std::string> CpuConvolutions::backward_parameters(const Convolution& c, const Tensor& dy,
                                                                const Tensor& x, const Tensor& dw,
                                                                const Tensor& db) {
    return told([&] {
        auto& stream = prepared_->stream;
        Plan& plan =
            prepared_->plan(c, dy.rows(), Direction::backward_parameters, Activation::none, bool(db));
        Argument arguments{{DNNL_ARG_DIFF_DST, plan.y.take(dy, true, stream)},
                           {DNNL_ARG_SRC, plan.x.take(x, true, stream)},
                           {DNNL_ARG_DIFF_WEIGHTS, plan.w.take(dw, false, stream)}};
        if (db) arguments.emplace(DNNL_ARG_DIFF_BIAS, plan.b.take(db, false, stream));
        plan.primitive.execute(stream, arguments);
        plan.w.give_back(stream);
        if (db) plan.b.give_back(stream);
        stream.wait();
    });
}

}  // namespace dp::trainer
