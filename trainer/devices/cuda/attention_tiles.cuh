// SPDX-License-Identifier: Apache-2.0
//
// How the blocks of tensor_attention.cu move one head's vectors from memory to shared memory and registers,
// and results back: a block has kOwn vectors, 16 per warp, and the others come by in tiles.
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

// A thread's part of kRows vectors on the way from memory to a tile in shared memory: its pieces are
// kThreadsOfBlock packs apart.
template <int kRows, int kSize>
struct Fetched {
    static constexpr int kPacks = kSize / 8, kSteps = kRows * kPacks / kThreadsOfBlock;
    static_assert(kRows * kPacks % kThreadsOfBlock == 0);
    Pack<Bf16, 8> at[kSteps];

    __device__ static int row(int step) {
        return (step * kThreadsOfBlock + static_cast<int>(threadIdx.x)) / kPacks;
    }
    __device__ static int column(int step) {
        return (step * kThreadsOfBlock + static_cast<int>(threadIdx.x)) % kPacks * 8;
    }
};

// All threads load; zeros beyond the tokens and beyond the head. Issues all loads before waiting for one.
template <int kRows, int kSize>
__device__ Fetched<kRows, kSize> fetch(const Vectors<const Bf16>& from) {
    using F = Fetched<kRows, kSize>;
    F fetched;
    const auto for_each_pack = [&](auto work) {
#pragma unroll
        for (int step = 0; step < F::kSteps; ++step) {
            const int row = F::row(step), column = F::column(step);
            auto& pack = fetched.at[step];
            pack = {};
            if (row < from.count && column < from.size)
                work(from.first + row * from.apart + column, from.size - column, pack);
        }
    };
    if (from.packs) {
        for_each_pack([](const Bf16* place, int, auto& pack) {
            pack = *reinterpret_cast<const Pack<Bf16, 8>*>(place);
        });
    } else {
        for_each_pack([](const Bf16* place, int count, auto& pack) {
            for (int i = 0; i < 8; ++i)
                if (i < count) pack.at[i] = place[i];
        });
    }
    return fetched;
}

template <int kRows, int kSize>
__device__ void put(Bf16* tile, const Fetched<kRows, kSize>& fetched) {
    using F = Fetched<kRows, kSize>;
#pragma unroll
    for (int step = 0; step < F::kSteps; ++step)
        *reinterpret_cast<Pack<Bf16, 8>*>(tile + F::row(step) * Sizes<kSize>::kStride + F::column(step)) =
            fetched.at[step];
}

// Loads the next kRows vectors into both tiles, after all threads have read the last ones. A barrier must
// follow before they are read.
template <int kRows, int kSize>
__device__ void next_tiles(Bf16* one, const Vectors<const Bf16>& from_one, Bf16* other,
                           const Vectors<const Bf16>& from_other) {
    const auto next_one = fetch<kRows, kSize>(from_one), next_other = fetch<kRows, kSize>(from_other);
    __syncthreads();
    put(one, next_one);
    put(other, next_other);
}

// Loads a warp's 16 of the block's kOwn vectors, as left factors, through a tile that is free meanwhile.
template <int kSize>
__device__ void own_vectors(LeftPiece (&pieces)[Sizes<kSize>::kSteps], const Vectors<const Bf16>& from,
                            Bf16* tile) {
    constexpr int kStride = Sizes<kSize>::kStride;
    const auto fetched = fetch<kOwn, kSize>(from);
    __syncthreads();
    put(tile, fetched);
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int step = 0; step < Sizes<kSize>::kSteps; ++step)
        pieces[step] = left_piece<kStride>(tile + warp * 16 * kStride + step * 16);
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

}  // namespace dp::trainer::kernels
