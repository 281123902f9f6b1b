// SPDX-License-Identifier: Apache-2.0
//
// How kernels read and write f32 and bf16 numbers: read as float, computed in float, rounded once when
// written. Included by every file of kernels.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "trainer/base/tensor.hpp"

namespace dp::trainer::kernels {

using Bf16 = __nv_bfloat16;

__device__ inline float read(float number) {
    return number;
}
__device__ inline float read(Bf16 number) {
    return __bfloat162float(number);
}
__device__ inline void write(float& to, float number) {
    to = number;
}
__device__ inline void write(Bf16& to, float number) {
    to = __float2bfloat16_rn(number);
}

__device__ inline unsigned pair_of(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

// Adjacent numbers that are read or written together, 16 bytes at a time.
template <typename T, int kWidth>
struct alignas(16) Pack {
    static_assert(sizeof(T) * kWidth % 16 == 0);
    T at[kWidth];
};
template <int kWidth>
struct Numbers {
    float at[kWidth];
};

// How many numbers of a type fit 16 bytes.
template <typename T>
inline constexpr int kPacked = 16 / static_cast<int>(sizeof(T));

// kWidth 1: that number, at any address. Otherwise `from` is a multiple of 16 bytes.
template <int kWidth, typename T>
__device__ Numbers<kWidth> read_pack(const T* from) {
    Numbers<kWidth> numbers;
    if constexpr (kWidth == 1) {
        numbers.at[0] = read(*from);
    } else {
        const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(from);
        for (int i = 0; i < kWidth; ++i) numbers.at[i] = read(pack.at[i]);
    }
    return numbers;
}
// In words of 16 bytes: the compiler may store a Pack number by number.
template <int kWidth, typename T>
__device__ void write_pack(T* to, const Numbers<kWidth>& numbers) {
    const auto& at = numbers.at;
    if constexpr (kWidth == 1) {
        write(*to, at[0]);
    } else if constexpr (std::is_same_v<T, float>) {
        for (int i = 0; i < kWidth; i += 4)
            *reinterpret_cast<float4*>(to + i) = make_float4(at[i], at[i + 1], at[i + 2], at[i + 3]);
    } else {
        static_assert(kWidth == 8);
        *reinterpret_cast<uint4*>(to) = make_uint4(pair_of(at[0], at[1]), pair_of(at[2], at[3]),
                                                   pair_of(at[4], at[5]), pair_of(at[6], at[7]));
    }
}

// ---- on the host

// Calls `work` with a number of that type: `[&]<typename T>(T)`.
template <typename Work>
void with_number(Type type, Work work) {
    if (type == Type::bf16) {
        work(Bf16{});
    } else {
        work(float{});
    }
}

inline bool in_packs(std::initializer_list<const void*> places) {
    for (const void* place : places)
        if (reinterpret_cast<std::uintptr_t>(place) % 16 != 0) return false;
    return true;
}

// Calls `queue` with a number of that type and how many neighbours a thread takes, as a constant: 16 bytes if
// rows of that many columns and all addresses allow it, else one. `[&]<typename T>(T, auto width)`.
template <typename Queue>
void with_width(Type type, std::int64_t columns, std::initializer_list<const void*> places, Queue queue) {
    with_number(type, [&]<typename T>(T number) {
        if (columns % kPacked<T> == 0 && in_packs(places)) {
            queue(number, std::integral_constant<int, kPacked<T>>{});
        } else {
            queue(number, std::integral_constant<int, 1>{});
        }
    });
}

}  // namespace dp::trainer::kernels
