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

namespace dp::trainer::kernels {

inline double half_of(std::uint64_t pair, int which) {
    const auto bits = static_cast<std::uint32_t>(pair >> (16 * which) & 0xFFFF) << 16;
    float number = 0;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

using cuda_emulator::Place;

inline void multiply_add_16x8x16(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1,
                                 Place place_of_call = Place::here()) {
    const auto& lanes = cuda_emulator::exchange({left[0], left[1], left[2], left[3], right0, right1},
                                                cuda_emulator::kAllLanes, place_of_call);
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

inline std::uint16_t bits_of(const __nv_bfloat16* number) {
    std::uint16_t bits;
    std::memcpy(&bits, number, sizeof bits);
    return bits;
}

// What lane `to` gets of the four matrices whose rows the lanes name.
inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row, bool transposes, Place place_of_call) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
        cuda_emulator::refuse("ldmatrix from an address that is not a multiple of 16");
    const auto& lanes = cuda_emulator::exchange({reinterpret_cast<std::uint64_t>(row)},
                                                cuda_emulator::kAllLanes, place_of_call);
    const int group = cuda_emulator::lane() / 4, place = cuda_emulator::lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned pair[2];
        for (int i = 0; i < 2; ++i) {
            const int line = transposes ? place + i : group, column = transposes ? group : place + i;
            pair[i] =
                bits_of(reinterpret_cast<const __nv_bfloat16*>(lanes.of[matrix * 8 + line][0]) + column);
        }
        to[matrix] = pair[0] | pair[1] << 16;
    }
}
inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row, Place place_of_call = Place::here()) {
    load_matrices(to, row, false, place_of_call);
}
inline void load_matrices_transposed(unsigned (&to)[4], const __nv_bfloat16* row,
                                     Place place_of_call = Place::here()) {
    load_matrices(to, row, true, place_of_call);
}

// Zeros where `from` is null. In words, whose copies the compiler shows to the shadow, as it does not those of a length that it does not know.
inline void copy_words(void* to, const void* from, std::size_t bytes) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes; i += sizeof word) {
        if (from != nullptr) std::memcpy(&word, static_cast<const char*>(from) + i, sizeof word);
        std::memcpy(static_cast<char*>(to) + i, &word, sizeof word);
    }
}

// The copies of this thread are made when it waits for them, and until then their places hold no number.
template <int kBytes>
void copy_later(void* to, const void* from, bool exists) {
    if (reinterpret_cast<std::uintptr_t>(to) % kBytes != 0 ||
        reinterpret_cast<std::uintptr_t>(from) % kBytes != 0)
        cuda_emulator::refuse("cp.async between addresses that are not multiples of its size");
    constexpr std::uint64_t kNothing[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    copy_words(to, kNothing, kBytes);
    cuda_emulator::add_later_copy({to, from, kBytes, exists});
}
inline void wait_for_copies() {
    while (const auto copy = cuda_emulator::take_later_copy())
        copy_words(copy->to, copy->exists ? copy->from : nullptr, copy->bytes);
}

inline float power_of_two(float x) {
    const float result = std::exp2(x);
    return result < std::numeric_limits<float>::min() ? 0 : result;
}

}  // namespace dp::trainer::kernels
