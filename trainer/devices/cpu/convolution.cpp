// SPDX-License-Identifier: Apache-2.0
//
// oneDNN chooses the memory layout that suits its kernels; ours is plain (n, c, h, w), so operands are
// reordered on the way in and out where it chose another. The copies lie in one scratch, which each call
// overwrites: with copies of its own for each convolution a U-Net takes 2.4 times its memory.
#include "trainer/devices/cpu/convolution.hpp"

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace dp::trainer {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

memory::desc plain(const memory::dims& dims, Tag tag) {
    return {dims, memory::data_type::f32, tag};
}
// Any layout that suits oneDNN.
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

// The bias, which may be missing.
memory::desc bias_of(const Dimensions& d, bool biased) {
    return biased ? plain(d.b, Tag::x) : memory::desc();
}

// oneDNN's own scratchpad is in our scratch memory.
dnnl::primitive_attr attributes_with(Activation activation) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
    if (activation == Activation::relu) after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
    if (activation == Activation::relu) after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
    attributes.set_post_ops(after);
    return attributes;
}

// oneDNN 3 has no operation descriptors any more.
dnnl::convolution_forward::primitive_desc describe_forward(const Dimensions& d, Activation activation,
                                                           bool biased, const dnnl::engine& engine) {
    constexpr auto kKind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
    return {engine,
            kKind,
            kAlgorithm,
            any(d.x),
            any(d.w),
            bias_of(d, biased),
            any(d.y),
            d.strides,
            d.padding,
            d.padding,
            attributes_with(activation)};
#else
    return {{kKind, kAlgorithm, any(d.x), any(d.w), bias_of(d, biased), any(d.y), d.strides, d.padding,
             d.padding},
            attributes_with(activation),
            engine};
#endif
}

dnnl::convolution_backward_data::primitive_desc describe_backward_input(
    const Dimensions& d, const dnnl::convolution_forward::primitive_desc& forward,
    const dnnl::engine& engine) {
    const auto attributes = attributes_with(Activation::none);
#if DNNL_VERSION_MAJOR >= 3
    return {engine,    kAlgorithm, any(d.x),  any(d.w), any(d.y),
            d.strides, d.padding,  d.padding, forward,  attributes};
#else
    return {{kAlgorithm, any(d.x), any(d.w), any(d.y), d.strides, d.padding, d.padding},
            attributes,
            engine,
            forward};
#endif
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_parameters(
    const Dimensions& d, bool biased, const dnnl::convolution_forward::primitive_desc& forward,
    const dnnl::engine& engine) {
    const auto attributes = attributes_with(Activation::none);
#if DNNL_VERSION_MAJOR >= 3
    return {engine,    kAlgorithm, any(d.x),  any(d.w), bias_of(d, biased), any(d.y),
            d.strides, d.padding,  d.padding, forward,  attributes};
#else
    return {{kAlgorithm, any(d.x), any(d.w), bias_of(d, biased), any(d.y), d.strides, d.padding, d.padding},
            attributes,
            engine,
            forward};
#endif
}

enum class Direction { forward, backward_input, backward_parameters };

dnnl::primitive_desc_base describe(const Dimensions& d, Direction direction, Activation activation,
                                   bool biased, const dnnl::engine& engine) {
    const auto forward = describe_forward(d, activation, biased, engine);
    if (direction == Direction::forward) return forward;
    if (direction == Direction::backward_input) return describe_backward_input(d, forward, engine);
    return describe_backward_parameters(d, biased, forward, engine);
}

// An operand's role for oneDNN.
struct Role {
    int argument = 0;
    bool is_result = false;
};
struct Roles {
    Role x, w, y, b;
};
constexpr Roles roles_of(Direction direction) {
    switch (direction) {
        case Direction::forward:
            return {{DNNL_ARG_SRC}, {DNNL_ARG_WEIGHTS}, {DNNL_ARG_DST, true}, {DNNL_ARG_BIAS}};
        case Direction::backward_input:
            return {{DNNL_ARG_DIFF_SRC, true}, {DNNL_ARG_WEIGHTS}, {DNNL_ARG_DIFF_DST}, {}};
        case Direction::backward_parameters:
            break;
    }
    return {{DNNL_ARG_SRC}, {DNNL_ARG_DIFF_WEIGHTS, true}, {DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_BIAS, true}};
}

// One direction of one convolution for one batch size.
class Plan {
 public:
    Plan(const Dimensions& d, Direction direction, Activation activation, bool biased,
         const dnnl::engine& engine)
        : description_(describe(d, direction, activation, biased, engine)),
          scratchpad_(description_.query_md(dnnl::query::scratchpad_md), engine, nullptr) {
        const auto add = [&](Role role, const memory::desc& ours) {
            const auto wanted = description_.query_md(dnnl::query::exec_arg_md, role.argument);
            operands_.push_back({role, memory(ours, engine, nullptr), memory(wanted, engine, nullptr),
                                 ours == wanted ? kNowhere : take(wanted.get_size())});
        };
        const Roles roles = roles_of(direction);
        add(roles.x, plain(d.x, Tag::nchw));
        add(roles.w, plain(d.w, Tag::oihw));
        add(roles.y, plain(d.y, Tag::nchw));
        if (biased) add(roles.b, plain(d.b, Tag::x));
        scratchpad_place_ = take(scratchpad_.get_desc().get_size());
    }

    // Bytes.
    std::size_t scratch() const { return scratch_; }

    // `tensors`: x, w, y and b, if there is one.
    void execute(std::array<const Tensor*, 4> tensors, std::byte* scratch, dnnl::stream& stream) {
        if (!primitive_) primitive_ = dnnl::primitive(description_.get());
        std::unordered_map<int, memory> arguments;
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            Operand& one = operands_[i];
            one.ours.set_data_handle(tensors.at(i)->data<float>());
            if (one.place != kNowhere) {
                // Also pads incomplete blocks of channels with zeros, because other plans use
                // the same memory.
                one.wanted.set_data_handle(scratch + one.place);
                if (!one.role.is_result)
                    dnnl::reorder(one.ours, one.wanted).execute(stream, one.ours, one.wanted);
            }
            arguments.emplace(one.role.argument, one.place != kNowhere ? one.wanted : one.ours);
        }
        scratchpad_.set_data_handle(scratch + scratchpad_place_);
        arguments.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
        primitive_.execute(stream, arguments);
        for (Operand& one : operands_)
            if (one.role.is_result && one.place != kNowhere)
                dnnl::reorder(one.wanted, one.ours).execute(stream, one.wanted, one.ours);
        stream.wait();
    }

 private:
    static constexpr std::size_t kNowhere = ~std::size_t{0};  // oneDNN takes our layout
    static constexpr std::size_t kAlignment = 256;

    struct Operand {
        Role role;
        memory ours, wanted;
        std::size_t place;  // in the scratch
    };
    dnnl::primitive_desc_base description_;
    dnnl::primitive primitive_;  // made for the first call: until then it takes neither time nor memory
    std::vector<Operand> operands_;
    memory scratchpad_;
    std::size_t scratchpad_place_ = 0;
    std::size_t scratch_ = 0;

    std::size_t take(std::size_t bytes) {
        const std::size_t place = scratch_;
        scratch_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
        return place;
    }
};

// `biased`: of the forward direction and of the parameters'.
using Key = std::tuple<Convolution, std::int64_t, Direction, Activation, bool>;

// oneDNN reports failures by exceptions.
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

struct CpuConvolutions::Prepared {
    Device& device;
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::map<Key, Plan> known = {};
    Tensor scratch = {};

    Plan& find(const Convolution& c, std::int64_t rows, Direction direction, Activation activation,
               bool biased) {
        const Key key{c, rows, direction, activation, biased};
        if (const auto found = known.find(key); found != known.end()) return found->second;
        const Dimensions d(c, rows);
        return known.emplace(key, Plan(d, direction, activation, biased, engine)).first->second;
    }

    void reserve(std::int64_t bytes) {
        if (scratch && bytes <= scratch.elements()) return;
        scratch = {};  // before more is asked for: nothing in it is needed any more
        if (bytes > 0) scratch = device.make(Type::u8, {bytes});
    }

    std::optional<std::string> run(const Convolution& c, Direction direction, Activation activation,
                                   const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& b) {
        return told([&] {
            Plan& plan = find(c, x.rows(), direction, activation, bool(b));
            const auto bytes = static_cast<std::int64_t>(plan.scratch());
            reserve(bytes);
            if (bytes > 0 && !scratch) return;  // the device has failed
            plan.execute({&x, &w, &y, &b}, scratch.data<std::byte>(), stream);
        });
    }
};

CpuConvolutions::CpuConvolutions(Device& device) : prepared_(new Prepared{device}) {}
CpuConvolutions::~CpuConvolutions() = default;

std::optional<std::string> CpuConvolutions::forward(const Convolution& c, const Tensor& x, const Tensor& w,
                                                    const Tensor& b, Activation activation, const Tensor& y) {
    return prepared_->run(c, Direction::forward, activation, x, w, y, b);
}

std::optional<std::string> CpuConvolutions::backward_input(const Convolution& c, const Tensor& dy,
                                                           const Tensor& w, const Tensor& dx) {
    return prepared_->run(c, Direction::backward_input, Activation::none, dx, w, dy, {});
}

std::optional<std::string> CpuConvolutions::backward_parameters(const Convolution& c, const Tensor& dy,
                                                                const Tensor& x, const Tensor& dw,
                                                                const Tensor& db) {
    return prepared_->run(c, Direction::backward_parameters, Activation::none, x, dw, dy, db);
}

void CpuConvolutions::reserve(std::int64_t bytes) {
    prepared_->reserve(bytes);
}

std::int64_t CpuConvolutions::scratch(const Convolution& c, std::int64_t rows) const {
    std::size_t most = 0;
    (void)told([&] {
        const Dimensions d(c, rows);
        for (const auto direction :
             {Direction::forward, Direction::backward_input, Direction::backward_parameters}) {
            const bool biased = direction != Direction::backward_input;
            most = std::max(most, Plan(d, direction, Activation::none, biased, prepared_->engine).scratch());
        }
    });
    return static_cast<std::int64_t>(most);  // whoever calls what oneDNN refuses is told why
}

}  // namespace dp::trainer
