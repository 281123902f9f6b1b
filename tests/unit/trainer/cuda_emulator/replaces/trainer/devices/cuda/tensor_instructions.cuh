// SPDX-License-Identifier: Apache-2.0
//
// In the place of the trainer's file of this name: the same functions without PTX, by what the PTX ISA says
// of mma.m16n8k16, ldmatrix and ex2.approx.ftz.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

namespace dp::trainer::kernels {

inline double half_of(std::uint64_t pair, int which) {
    const auto bits = static_cast<std::uint32_t>(pair >> (16 * which) & 0xFFFF) << 16;
    float number = 0;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

inline void multiply_add_16x8x16(float (&sum)[4], const unsigned (&left)[4], unsigned right0,
                                 unsigned right1) {
    const auto& lanes = cuda_emulator::exchange({left[0], left[1], left[2], left[3], right0, right1});
    const int group = cuda_emulator::lane() / 4, place = cuda_emulator::lane() % 4;
    for (int i = 0; i < 4; ++i) {
        const int row = group + i / 2 * 8, column = place * 2 + i % 2;
        double total = sum[i];
        for (int k = 0; k < 16; ++k) {
            const int holder = k % 8 / 2, half = k / 8;
            total += half_of(lanes.of[row % 8 * 4 + holder][row / 8 + 2 * half], k % 2) *
                     half_of(lanes.of[column * 4 + holder][4 + half], k % 2);
        }
        sum[i] = static_cast<float>(total);
    }
}

// What lane `to` gets of the four matrices whose rows the lanes name.
inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row, bool transposes) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) std::abort();
    const auto& lanes = cuda_emulator::exchange({reinterpret_cast<std::uint64_t>(row)});
    const int group = cuda_emulator::lane() / 4, place = cuda_emulator::lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
        std::uint16_t pair[2];
        for (int i = 0; i < 2; ++i) {
            const int line = transposes ? place + i : group, column = transposes ? group : place + i;
            const auto* from = reinterpret_cast<const __nv_bfloat16*>(lanes.of[matrix * 8 + line][0]);
            std::memcpy(&pair[i], from + column, sizeof pair[i]);
        }
        to[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
    }
}
inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row) {
    load_matrices(to, row, false);
}
inline void load_matrices_transposed(unsigned (&to)[4], const __nv_bfloat16* row) {
    load_matrices(to, row, true);
}

// The copies of this thread are made when it waits for them, and until then their places hold no number.
struct LaterCopy {
    void* to;
    const void* from;
    std::size_t bytes;
    bool exists;
};
inline auto& later_copies() {
    thread_local std::map<unsigned, std::vector<LaterCopy>> copies;  // by the number of the emulated thread
    return copies[threadIdx.x];
}
template <int kBytes>
void copy_later(void* to, const void* from, bool exists) {
    if (reinterpret_cast<std::uintptr_t>(to) % kBytes != 0 ||
        reinterpret_cast<std::uintptr_t>(from) % kBytes != 0)
        std::abort();
    std::memset(to, 0xFF, kBytes);
    later_copies().push_back({to, from, kBytes, exists});
}
inline void wait_for_copies() {
    for (const LaterCopy& copy : later_copies()) {
        std::memset(copy.to, 0, copy.bytes);
        if (copy.exists) std::memcpy(copy.to, copy.from, copy.bytes);
    }
    later_copies().clear();
}

inline float power_of_two(float x) {
    const float result = std::exp2(x);
    return result < std::numeric_limits<float>::min() ? 0 : result;
}

}  // namespace dp::trainer::kernels
