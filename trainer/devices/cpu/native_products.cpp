// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/native_products.hpp"

#include <compare>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <utility>

#include "trainer/devices/cpu/onednn.hpp"

namespace dp::trainer::cpu {
namespace {

using dnnl::memory;

// A matrix in memory: from one row to the next, and from one column to the next.
struct Strides {
    std::int64_t row, column;
    auto operator<=>(const Strides&) const = default;
};

// c [rows, columns] = act(a b + bias + added), or that added to c; summed over `inner`. `added` has c's strides.
struct Product {
    std::int64_t rows, columns, inner;
    Strides a, b;
    std::int64_t c_stride;
    Type c_type;
    bool biased, adds;
    Activation activation;
    Write write;
    auto operator<=>(const Product&) const = default;
};

memory::desc matrix(std::int64_t rows, std::int64_t columns, Strides strides, Type type = Type::bf16) {
    return {{rows, columns}, onednn_type(type), memory::dims{strides.row, strides.column}};
}

class PreparedProduct {
 public:
    PreparedProduct(const Product& p, const dnnl::engine& engine)
        : a_(matrix(p.rows, p.inner, p.a), engine, nullptr),
          b_(matrix(p.inner, p.columns, p.b), engine, nullptr),
          c_(matrix(p.rows, p.columns, {p.c_stride, 1}, p.c_type), engine, nullptr),
          bias_(matrix(1, p.columns, {p.columns, 1}), engine, nullptr),
          added_(c_.get_desc(), engine, nullptr) {
        dnnl::post_ops after;
        if (p.adds) after.append_binary(dnnl::algorithm::binary_add, added_.get_desc());
        if (p.write == Write::add) after.append_sum();
        append_activation(after, p.activation);
        dnnl::primitive_attr attributes;
        attributes.set_post_ops(after);
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        const memory::desc bias = p.biased ? bias_.get_desc() : memory::desc();
        const auto description = described<dnnl::matmul>(
            engine, attributes, std::tuple(a_.get_desc(), b_.get_desc(), bias, c_.get_desc()));
        primitive_ = dnnl::matmul(description);
        scratchpad_ = memory(description.scratchpad_desc(), engine, nullptr);
        arguments_ = {{DNNL_ARG_SRC, a_},
                      {DNNL_ARG_WEIGHTS, b_},
                      {DNNL_ARG_DST, c_},
                      {DNNL_ARG_SCRATCHPAD, scratchpad_}};
        if (p.biased) arguments_.emplace(DNNL_ARG_BIAS, bias_);
        if (p.adds) arguments_.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, added_);
    }

    // Bytes.
    std::size_t scratch() const { return scratchpad_.get_desc().get_size(); }

    void execute(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& bias, const Tensor& added,
                 void* scratch, dnnl::stream& stream) {
        scratchpad_.set_data_handle(scratch);
        a_.set_data_handle(a.data<void>());
        b_.set_data_handle(b.data<void>());
        c_.set_data_handle(c.data<void>());
        if (bias) bias_.set_data_handle(bias.data<void>());
        if (added) added_.set_data_handle(added.data<void>());
        primitive_.execute(stream, arguments_);
        stream.wait();
    }

 private:
    memory a_, b_, c_, bias_, added_, scratchpad_;  // handles: the arguments share them
    dnnl::primitive primitive_;
    std::unordered_map<int, memory> arguments_;
};

// Texts of any length have other products: all of them would be kept otherwise.
constexpr std::size_t kMostKept = 256;

// Memory for packed blocks of the factors: a megabyte or so, of oneDNN's own as in its other products, and in no account.
class Scratch {
 public:
    void* of(std::size_t bytes) {
        if (bytes > bytes_) {
            memory_.reset();  // before there is more
            memory_.reset(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
            bytes_ = memory_ ? bytes : 0;
        }
        return memory_.get();
    }

 private:
    static constexpr std::size_t kAlignment = 4096;
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    std::unique_ptr<void, Free> memory_;
    std::size_t bytes_ = 0;
};

}  // namespace

struct NativeProducts::Prepared {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::map<Product, PreparedProduct> known = {};
    Scratch scratch = {};

    bool run(const Product& product, const Tensor& a, const Tensor& b, const Tensor& c,
             const Tensor& bias = {}, const Tensor& added = {}) {
        bool has_memory = true;
        const auto failure = failure_of([&] {
            auto found = known.find(product);
            if (found == known.end()) {
                if (known.size() >= kMostKept) known.clear();
                found = known.emplace(product, PreparedProduct(product, engine)).first;
            }
            const std::size_t bytes = found->second.scratch();
            void* memory_for_it = scratch.of(bytes);
            has_memory = bytes == 0 || memory_for_it != nullptr;
            if (has_memory) found->second.execute(a, b, c, bias, added, memory_for_it, stream);
        });
        return has_memory && !failure;
    }
};

NativeProducts::NativeProducts() : prepared_(new Prepared) {}
NativeProducts::~NativeProducts() = default;

bool NativeProducts::linear(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& added,
                            Activation activation, const Tensor& y) {
    const Product product{y.rows(), w.rows(), x.columns(), {x.columns(), 1}, {1, w.columns()}, y.columns(),
                          y.type(), bool(b),  bool(added), activation,       Write::set};
    return prepared_->run(product, x, w, y, b, added);
}

bool NativeProducts::linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) {
    const Product product{
        dx.rows(), dx.columns(), w.rows(), {dy.columns(), 1}, {w.columns(), 1}, dx.columns(),
        dx.type(), false,        false,    Activation::none,  Write::set};
    return prepared_->run(product, dy, w, dx);
}

bool NativeProducts::linear_backward_weights(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                             Write write) {
    const Product product{dw.rows(),
                          dw.columns(),
                          dy.rows(),
                          {1, dy.columns()},
                          {x.columns(), 1},
                          dw.columns(),
                          dw.type(),
                          false,
                          false,
                          Activation::none,
                          write};
    return prepared_->run(product, dy, x, dw);
}

}  // namespace dp::trainer::cpu
