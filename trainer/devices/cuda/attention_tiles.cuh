// SPDX-License-Identifier: Apache-2.0
//
// How the blocks of tensor_attention.cu move one head's vectors from memory to shared memory and registers,
// and results back: a block has kOwn vectors, 16 per warp, and the others come by in tiles, two at a time: a stage.
#pragma once

#include "trainer/devices/cuda/attention_head.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/tensor_core.cuh"

namespace dp::trainer::kernels {

inline constexpr int kWarps = 4, kThreadsOfBlock = 32 * kWarps;
inline constexpr int kOwn = 16 * kWarps;  // queries or keys of a block

// For a head of up to kSize numbers, a multiple of 32. The rest is zeros, which change no product.
template <int kSize>
struct Sizes {
    static constexpr int kStride = kSize + 8;  // between rows: ldmatrix then hits no bank twice
    static constexpr int kSteps = kSize / 16;  // pieces of a vector as a factor
    static constexpr int kSums = kSize / 8;    // pieces of a vector as a sum
    // How many of the others' vectors at a time: as many as fit into registers.
    static constexpr int kTile = kSize <= 64 ? 64 : 32;
    static constexpr int kScores = kTile / 8;            // pieces of their scores
    static constexpr int kBlocks = kSize <= 64 ? 3 : 2;  // that an SM's registers are to have room for
    static constexpr int kStage = 2 * kTile * kStride;   // numbers of two tiles
    static_assert(kStage >= kOwn * kStride);
};

// Token vectors of one head, from one token on: the first address, the stride, the number of vectors and
// their size. packs: whether each vector is aligned to 16 bytes and a multiple of them.
template <typename T>
struct Vectors {
    T* first;
    std::int64_t apart;
    int count, size;
    bool packs;
};
template <typename T>
__device__ Vectors<T> in_qkv(const Head& head, T* qkv, int part, std::int64_t token, bool packs) {
    return {qkv + head.in_qkv(token, part), 3 * head.columns, static_cast<int>(head.sequence - token),
            head.size, packs};
}
template <typename T>
__device__ Vectors<T> in_y(const Head& head, T* y, std::int64_t token, bool packs) {
    return {y + head.in_y(token), head.columns, static_cast<int>(head.sequence - token), head.size, packs};
}

// Begins to copy kRows vectors to a tile, with zeros beyond the tokens and beyond the head. The tile can be read when each
// thread has called wait_for_copies() and has met the others at a barrier.
template <int kRows, int kSize>
__device__ void copy_tile(Bf16* tile, const Vectors<const Bf16>& from) {
    constexpr int kPacks = kSize / 8, kSteps = kRows * kPacks / kThreadsOfBlock;
    static_assert(kRows * kPacks % kThreadsOfBlock == 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int pack = step * kThreadsOfBlock + static_cast<int>(threadIdx.x);
        const int row = pack / kPacks, column = pack % kPacks * 8;
        const bool exists = row < from.count && column < from.size;
        const Bf16* place = exists ? from.first + row * from.apart + column : from.first;
        Bf16* to = tile + row * Sizes<kSize>::kStride + column;
        if (from.packs) {
            copy_later<16>(to, place, exists);
            continue;
        }
        for (int i = 0; i < 8; ++i) to[i] = exists && column + i < from.size ? place[i] : Bf16{};
    }
}

// Loads a warp's 16 of the block's kOwn vectors, as left factors, through a stage of tiles that is free meanwhile.
template <int kSize>
__device__ void own_vectors(LeftPiece (&pieces)[Sizes<kSize>::kSteps], const Vectors<const Bf16>& from,
                            Bf16* tile) {
    constexpr int kStride = Sizes<kSize>::kStride;
    __syncthreads();
    copy_tile<kOwn, kSize>(tile, from);
    wait_for_copies();
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int step = 0; step < Sizes<kSize>::kSteps; ++step)
        pieces[step] = left_piece<kStride>(tile + warp * 16 * kStride + step * 16);
}

// Goes through tiles of others' vectors, from token `first` to before `end`: copy(first, stage) begins to copy those from a token
// on, work(first, stage) reads them. While a stage is read, the next tiles arrive in the other one; the first of them are in
// stage 0, and stage 1 is free until the call.
template <int kTile, typename Copy, typename Work>
__device__ void for_each_tile(std::int64_t first, std::int64_t end, Copy copy, Work work) {
    for (int stage = 0; first < end; first += kTile, stage = 1 - stage) {
        wait_for_copies();
        __syncthreads();  // all have these tiles, and nobody reads the last ones any more
        if (first + kTile < end) copy(first + kTile, 1 - stage);
        work(first, stage);
    }
}

// Writes a warp's 16 results times the factors of this lane's first and second row, if they exist; two
// neighbours at once if they are adjacent.
template <int kSums>
__device__ void store(const SumPiece (&results)[kSums], float first_factor, float second_factor,
                      const Vectors<Bf16>& to) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = SumPiece::row(2 * half);
        if (row >= to.count) continue;
        const float factor = half == 0 ? first_factor : second_factor;
#pragma unroll
        for (int sum = 0; sum < kSums; ++sum) {
            const int column = sum * 8 + SumPiece::column(0);
            const float one = results[sum].at[2 * half] * factor,
                        other = results[sum].at[2 * half + 1] * factor;
            Bf16* place = to.first + row * to.apart + column;
            if (to.packs) {
                if (column < to.size) *reinterpret_cast<unsigned*>(place) = pair_of(one, other);
                continue;
            }
            if (column < to.size) write(place[0], one);
            if (column + 1 < to.size) write(place[1], other);
        }
    }
}

// ---- on the host

// Whether the heads' vectors in y's rows are aligned to 16 bytes and a multiple of them.
inline bool vectors_in_packs(const Attention& a, const Tensor& y, std::initializer_list<const void*> places) {
    return y.columns() / a.heads % 8 == 0 && in_packs(places);
}

}  // namespace dp::trainer::kernels
