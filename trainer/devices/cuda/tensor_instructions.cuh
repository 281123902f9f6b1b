// SPDX-License-Identifier: Apache-2.0
//
// The PTX instructions that tensor_core.cuh, attention_tiles.cuh, the kernels of attention in bf16 and loss_kernels.cu use; all our
// inline PTX is here. All lanes of a warp call them. The tests' emulated GPU replaces this file (tests/unit/trainer/cuda_emulator).
#pragma once

#include <cuda_bf16.h>

namespace dp::trainer::kernels {

// mma.sync.m16n8k16: sum += left right.
__device__ inline void multiply_add_16x8x16(float (&sum)[4], const unsigned (&left)[4], unsigned right0,
                                            unsigned right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// Loads four matrices of 8 x 8 from shared memory; lane i gives the address of row i % 8 of matrix i / 8, a
// multiple of 16 bytes. Of each matrix, lane i gets columns i % 4 * 2 and the next of row i / 4.
__device__ inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row) {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
}
// The same, transposed.
__device__ inline void load_matrices_transposed(unsigned (&to)[4], const __nv_bfloat16* row) {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
}

// cp.async: begins to copy kBytes, 8 or 16, from memory to shared memory, both aligned to that many; zeros, and nothing is read,
// if it does not exist. Those of 16 bytes are not kept in the SM's own cache.
template <int kBytes>
__device__ inline void copy_later(void* to, const void* from, bool exists) {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = exists ? kBytes : 0;
    static_assert(kBytes == 8 || kBytes == 16);
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(place), "l"(from), "r"(bytes)
                     : "memory");
}
// Waits for all that this thread has begun.
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// ex2.approx: 2 to the power x, accurate to two units in the last place; 0 for minus infinity. exp2f() adds
// instructions for results below 2^-126.
__device__ inline float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace dp::trainer::kernels
