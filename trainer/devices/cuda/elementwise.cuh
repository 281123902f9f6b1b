// SPDX-License-Identifier: Apache-2.0
//
// out[i] = f(in[i] ...): the kernel of all elementwise operations. They are bound by memory traffic: each
// number is read once and written once, 16 bytes at a time if all tensors allow it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"

namespace dp::trainer::kernels {

template <int kWidth, typename F, typename... In>
__device__ Numbers<kWidth> each(F f, const In&... in) {
    Numbers<kWidth> result;
    for (int i = 0; i < kWidth; ++i) result.at[i] = f(in.at[i]...);
    return result;
}

// A thread reads all inputs of an element before it writes it, so `out` may be one of the inputs.
template <int kWidth, typename F, typename Out, typename... In>
__global__ void map_kernel(F f, std::int64_t count, Out* out, const In*... in) {
    const std::int64_t packs = count / kWidth;
    for (std::int64_t i = first_item(); i < packs; i += stride())
        write_pack<kWidth>(out + i * kWidth, each<kWidth>(f, read_pack<kWidth>(in + i * kWidth)...));
    for (std::int64_t i = packs * kWidth + first_item(); i < count; i += stride())
        write(out[i], f(read(in[i])...));
}

// f: a struct with float operator()(float ...) const on the device.
template <typename F, typename Out, typename... In>
void map(CudaDevice& device, const char* what, F f, std::int64_t count, Out* out, const In*... in) {
    constexpr int kWidth = std::max({kPacked<Out>, kPacked<In>...});
    if (in_packs({out, in...})) {
        device.launch(what, map_kernel<kWidth, F, Out, In...>, blocks_for(count / kWidth + 1), kThreads, f,
                      count, out, in...);
    } else {
        device.launch(what, map_kernel<1, F, Out, In...>, blocks_for(count), kThreads, f, count, out, in...);
    }
}

// Of tensors of one type.
template <typename F, std::same_as<Tensor>... Inputs>
void map(CudaDevice& device, const char* what, F f, const Tensor& out, const Inputs&... in) {
    with_number(out.type(), [&]<typename T>(T) {
        map(device, what, f, out.elements(), out.data<T>(), static_cast<const T*>(in.template data<T>())...);
    });
}

}  // namespace dp::trainer::kernels
