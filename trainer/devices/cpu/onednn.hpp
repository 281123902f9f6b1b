// SPDX-License-Identifier: Apache-2.0
//
// What differs between oneDNN 2 and 3, once; and its failures, which are exceptions, as results.
#pragma once

#include <dnnl.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// f32 or bf16.
inline dnnl::memory::data_type onednn_type(Type type) {
    return type == Type::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

inline void append_activation(dnnl::post_ops& after, Activation activation) {
    if (activation == Activation::none) return;
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
}

// Describes a primitive by oneDNN's arguments. oneDNN 3 has no operation descriptors any more. `forward`: the
// description to which a backward primitive belongs.
template <typename Primitive, typename... Forward, typename... Arguments>
typename Primitive::primitive_desc described(const dnnl::engine& engine,
                                             const dnnl::primitive_attr& attributes,
                                             const std::tuple<Arguments...>& arguments,
                                             const Forward&... forward) {
    return std::apply(
        [&](const auto&... all) -> typename Primitive::primitive_desc {
#if DNNL_VERSION_MAJOR >= 3
            return {engine, all..., forward..., attributes};
#else
            return {{all...}, attributes, engine, forward...};
#endif
        },
        arguments);
}

// oneDNN reports failures by exceptions.
template <typename Work>
std::optional<std::string> failure_of(Work work) {
    try {
        work();
        return std::nullopt;
    } catch (const dnnl::error& error) {
        return std::string("oneDNN: ") + error.what();
    }
}

}  // namespace dp::trainer::cpu
