// SPDX-License-Identifier: Apache-2.0
//
// oneDNN chooses the memory layout that suits its kernels; ours is plain (n, c, h, w), so operands are
// reordered on the way in and out where it chose another. The copies lie in one scratch, which each call
// overwrites: with copies of its own for each convolution a U-Net takes 2.4 times its memory.
#include "trainer/devices/cpu/convolution.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "trainer/devices/cpu/onednn.hpp"

namespace dp::trainer {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

memory::desc plain(const memory::dims& dims, Tag tag, Type type) {
    return {dims, cpu::onednn_type(type), tag};
}
// Any layout that suits oneDNN.
memory::desc any(const memory::dims& dims, Type type) {
    return {dims, cpu::onednn_type(type), Tag::any};
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
    memory::dims x, w, b, y, strides, padding;
};

// oneDNN's own scratchpad is in our scratch memory.
dnnl::primitive_attr attributes_with(Activation activation) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    cpu::append_activation(after, activation);
    attributes.set_post_ops(after);
    return attributes;
}

// `type`: of what flows. Gradients of the parameters are f32.
dnnl::primitive_desc_base describe(const Dimensions& d, Direction direction, Activation activation,
                                   bool biased, Type type, const dnnl::engine& engine) {
    const auto bias = [&](Type of_bias) { return biased ? plain(d.b, Tag::x, of_bias) : memory::desc(); };
    const auto x = any(d.x, type), w = any(d.w, type), y = any(d.y, type);
    const auto forward = cpu::described<dnnl::convolution_forward>(
        engine, attributes_with(activation),
        std::tuple(dnnl::prop_kind::forward_training, kAlgorithm, x, w, bias(type), y, d.strides, d.padding,
                   d.padding));
    if (direction == Direction::forward) return forward;
    const auto attributes = attributes_with(Activation::none);
    if (direction == Direction::backward_input)
        return cpu::described<dnnl::convolution_backward_data>(
            engine, attributes, std::tuple(kAlgorithm, x, w, y, d.strides, d.padding, d.padding), forward);
    return cpu::described<dnnl::convolution_backward_weights>(
        engine, attributes,
        std::tuple(kAlgorithm, x, any(d.w, Type::f32), bias(Type::f32), y, d.strides, d.padding, d.padding),
        forward);
}

// An operand's role for oneDNN.
struct Role {
    int argument = 0;
    bool is_result = false;
};
// By Direction.
constexpr struct {
    Role x, w, y, b;
} kRoles[] = {
    {{DNNL_ARG_SRC}, {DNNL_ARG_WEIGHTS}, {DNNL_ARG_DST, true}, {DNNL_ARG_BIAS}},
    {{DNNL_ARG_DIFF_SRC, true}, {DNNL_ARG_WEIGHTS}, {DNNL_ARG_DIFF_DST}, {}},
    {{DNNL_ARG_SRC}, {DNNL_ARG_DIFF_WEIGHTS, true}, {DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_BIAS, true}},
};

// One direction of one convolution for one batch size.
class Plan {
 public:
    Plan(const Dimensions& d, Direction direction, Activation activation, bool biased, Type type,
         const dnnl::engine& engine)
        : description_(describe(d, direction, activation, biased, type, engine)),
          scratchpad_(description_.query_md(dnnl::query::scratchpad_md), engine, nullptr) {
        const auto add = [&](Role role, const memory::desc& ours) {
            const auto wanted = description_.query_md(dnnl::query::exec_arg_md, role.argument);
            operands_.push_back({role, memory(ours, engine, nullptr), memory(wanted, engine, nullptr),
                                 ours == wanted ? kNowhere : take(wanted.get_size())});
        };
        const auto& roles = kRoles[static_cast<int>(direction)];
        const Type parameters = direction == Direction::backward_parameters ? Type::f32 : type;
        add(roles.x, plain(d.x, Tag::nchw, type));
        add(roles.w, plain(d.w, Tag::oihw, parameters));
        add(roles.y, plain(d.y, Tag::nchw, type));
        if (biased) add(roles.b, plain(d.b, Tag::x, parameters));
        scratchpad_place_ = take(scratchpad_.get_desc().get_size());
    }

    std::size_t scratch() const { return scratch_; }  // bytes

    // `tensors`: x, w, y and b, if there is one.
    void execute(std::array<const Tensor*, 4> tensors, std::byte* scratch, dnnl::stream& stream) {
        if (!primitive_) primitive_ = dnnl::primitive(description_.get());
        std::unordered_map<int, memory> arguments;
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            Operand& one = operands_[i];
            one.ours.set_data_handle(tensors.at(i)->data<void>());
            if (one.place != kNowhere) {
                // Also pads incomplete blocks of channels with zeros: other plans use the same memory.
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
using Key = std::tuple<Convolution, std::int64_t, Direction, Activation, bool, Type>;

}  // namespace

struct CpuConvolutions::Prepared {
    Device& device;
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::map<Key, Plan> known = {};
    Tensor scratch = {};
};

CpuConvolutions::CpuConvolutions(Device& device) : prepared_(new Prepared{device}) {}
CpuConvolutions::~CpuConvolutions() = default;

std::optional<std::string> CpuConvolutions::run(const Convolution& c, Direction direction,
                                                Activation activation, const Tensor& x, const Tensor& w,
                                                const Tensor& y, const Tensor& b) {
    return cpu::failure_of([&] {
        const Key key{c, x.rows(), direction, activation, bool(b), x.type()};
        auto& known = prepared_->known;
        auto found = known.find(key);
        if (found == known.end()) {
            Plan plan(Dimensions(c, x.rows()), direction, activation, bool(b), x.type(), prepared_->engine);
            found = known.emplace(key, std::move(plan)).first;
        }
        const auto bytes = static_cast<std::int64_t>(found->second.scratch());
        reserve(bytes);
        if (bytes > 0 && !prepared_->scratch) return;  // the device has failed
        found->second.execute({&x, &w, &y, &b}, prepared_->scratch.data<std::byte>(), prepared_->stream);
    });
}

void CpuConvolutions::reserve(std::int64_t bytes) {
    Tensor& scratch = prepared_->scratch;
    if (scratch && bytes <= scratch.elements()) return;
    scratch = {};  // before more is asked for: nothing in it is needed any more
    if (bytes > 0) scratch = prepared_->device.make(Type::u8, {bytes});
}

std::int64_t CpuConvolutions::scratch(const Convolution& c, std::int64_t rows, Type type) const {
    std::size_t most = 0;
    (void)cpu::failure_of([&] {
        for (const auto direction :
             {Direction::forward, Direction::backward_input, Direction::backward_parameters}) {
            const bool biased = direction != Direction::backward_input;
            const Plan plan(Dimensions(c, rows), direction, Activation::none, biased, type,
                            prepared_->engine);
            most = std::max(most, plan.scratch());
        }
    });
    return static_cast<std::int64_t>(most);  // if oneDNN refuses, run() says why
}

}  // namespace dp::trainer
