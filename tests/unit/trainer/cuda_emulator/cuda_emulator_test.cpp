// SPDX-License-Identifier: Apache-2.0
//
// That the emulated GPU computes what a GPU does, and that it shows the faults for which it is there: without
// that the tests of the trainer's kernels on it would prove little.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "kernel_tests.hpp"
#include "spins.hpp"

namespace {

using dp::cuda_emulator::hand_out;
using dp::cuda_emulator::launch;
using dp::cuda_emulator::Memory;
using dp::cuda_emulator::Order;
using dp::cuda_emulator::order_named;
using dp::cuda_emulator::set_late;
using dp::cuda_emulator::set_order;
using dp::cuda_emulator::set_patience;

constexpr int kThreads = 96, kBlocks = 3;

// Each block turns its part around.
__global__ void turn_kernel(const int* in, int* out, bool waits) {
    __shared__ int shared[kThreads];
    const unsigned first = blockIdx.x * kThreads;
    shared[threadIdx.x] = in[first + threadIdx.x];
    if (waits) __syncthreads();
    out[first + threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

std::vector<int> turned(Order order, bool waits) {
    const Memory<int> in(kThreads * kBlocks), out(kThreads * kBlocks);
    std::iota(in.first(), in.first() + kThreads * kBlocks, 0);
    set_order(order);
    EXPECT_EQ(launch(turn_kernel, kBlocks, kThreads, in.first(), out.first(), waits), cudaSuccess);
    set_order({});
    return out.values();
}

TEST(CudaEmulator, ABarrierMakesAllOrdersAlikeAndWithoutOneNoOrderIsRight) {
    std::vector<int> right(kThreads * kBlocks);
    for (int i = 0; i < kThreads * kBlocks; ++i)
        right[static_cast<std::size_t>(i)] = i / kThreads * kThreads + kThreads - 1 - i % kThreads;
    for (const Order& order : {Order{}, Order{true, {}}, Order{false, 1}, Order{false, 2},
                               Order{false, 1, true}, Order{false, 1, true, true}}) {
        EXPECT_EQ(turned(order, true), right);
        EXPECT_NE(turned(order, false), right);
    }
}

// Threads of the one warp read what those of the other wrote: in one of the orders that is right by chance.
__global__ void later_warp_reads_kernel(int* out) {
    __shared__ int shared[32];
    if (threadIdx.x < 32) shared[threadIdx.x] = static_cast<int>(blockIdx.x * 100 + threadIdx.x);
    if (threadIdx.x >= 32) out[blockIdx.x * 32 + threadIdx.x - 32] = shared[threadIdx.x - 32];
}

TEST(CudaEmulator, AMissingBarrierShowsInAnotherOrder) {
    const auto run = [](Order order) {
        const Memory<int> out(2 * 32);
        set_order(order);
        EXPECT_EQ(launch(later_warp_reads_kernel, 2, 64, out.first()), cudaSuccess);
        set_order({});
        return out.values();
    };
    EXPECT_NE(run({}), run({true, {}}));
    EXPECT_NE(run({}), run({false, 1}));
}

TEST(CudaEmulator, AnOrderHasAName) {
    EXPECT_EQ(order_named("forward"), Order());
    EXPECT_EQ(order_named("backward"), (Order{true, {}, false}));
    EXPECT_EQ(order_named("12"), (Order{false, 12, false}));
    EXPECT_EQ(order_named("greedy:7"), (Order{false, 7, true}));
    EXPECT_EQ(order_named("interleaved:7"), (Order{false, 7, true, true}));
    for (const char* name :
         {"", "greedy", "greedy:", "greedy:x", "interleaved", "interleaved:greedy:1", "1x", "-1", "Forward"})
        EXPECT_EQ(order_named(name), std::nullopt) << name;
}

// Two sums over the block, whose parts are at the same place.
__global__ void two_sums_kernel(int* out, bool waits) {
    __shared__ int of_warps[kThreads / 32];
    int total = 0;
    for (int turn = 0; turn < 2; ++turn) {
        int sum = static_cast<int>(threadIdx.x) + turn;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        if (waits) __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
        __syncthreads();
        for (const int of_warp : of_warps) total += of_warp;
    }
    out[threadIdx.x] = total;
}

TEST(CudaEmulator, OnlyAGreedyWarpOverwritesWhatOthersHaveYetToReadBeforeItsNextShuffles) {
    const std::vector<int> right(kThreads, kThreads * (kThreads - 1) + kThreads);
    const auto run = [](Order order, bool waits) {
        const Memory<int> out(kThreads);
        set_order(order);
        EXPECT_EQ(launch(two_sums_kernel, 1, kThreads, out.first(), waits), cudaSuccess);
        set_order({});
        return out.values();
    };
    for (const Order& order : {Order{}, Order{true, {}}, Order{false, 1}}) {
        EXPECT_EQ(run(order, true), right);
        EXPECT_EQ(run(order, false), right);
    }
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        EXPECT_EQ(run({false, seed, true}, true), right);
        EXPECT_NE(run({false, seed, true}, false), right);
    }
}

// Counts from what it shares.
__global__ void count_kernel(float* out, bool clears) {
    __shared__ float large[1000], count;
    if (clears && threadIdx.x == 0) count = large[7] = 0;
    __syncthreads();
    if (threadIdx.x != 0) return;
    count += 1;
    large[7] += 1;
    out[blockIdx.x] = count;
    out[blockIdx.x + kBlocks] = large[7];
}

TEST(CudaEmulator, ABlockSharesNothingWithTheLastOneInAnyHostThread) {
    const auto run = [](bool clears) {
        const Memory<float> out(2 * kBlocks);
        EXPECT_EQ(launch(count_kernel, kBlocks, 32, out.first(), clears), cudaSuccess);
        return out.values();
    };
    const auto check = [&] {
        for (int launches = 0; launches < 2; ++launches) {
            EXPECT_EQ(run(true), std::vector<float>(2 * kBlocks, 1));
            for (const float count : run(false)) EXPECT_TRUE(std::isnan(count)) << count;
        }
    };
    check();
    std::thread(check).join();
    check();
}

__global__ void leave_kernel(float* out, bool writes) {
    float numbers[64];
    float* place = numbers;
    asm("" : "+r"(place));  // so that the compiler does not know what is there
    if (writes) std::fill(place, place + 64, 1.0f);
    out[threadIdx.x] = place[threadIdx.x];
}

TEST(CudaEmulator, AKernelFindsNothingOfTheLastOneOnTheStack) {
    const Memory<float> out(64);
    for (int launches = 0; launches < 2; ++launches) {
        ASSERT_EQ(launch(leave_kernel, 1, 64, out.first(), true), cudaSuccess);
        EXPECT_EQ(out.values(), std::vector<float>(64, 1));
        ASSERT_EQ(launch(leave_kernel, 1, 64, out.first(), false), cudaSuccess);
        for (const float number : out.values()) EXPECT_TRUE(std::isnan(number)) << number;
    }
}

__global__ void warp_kernel(int* down, int* crosswise, int* broadcast, unsigned* ballot, int* any) {
    const auto own = static_cast<int>(threadIdx.x);
    down[own] = __shfl_down_sync(0xFFFFFFFFu, own, 4);
    crosswise[own] = __shfl_xor_sync(0xFFFFFFFFu, own, 5);
    broadcast[own] = __shfl_sync(0xFFFFFFFFu, own, 7);
    ballot[own] = __ballot_sync(0xFFFFFFFFu, own % 2);
    any[own] = __syncthreads_or(own == 40) + 2 * __syncthreads_or(own == 99);
}

TEST(CudaEmulator, LanesSeeTheirOwnWarpAndBlocksAskAllThreads) {
    const Memory<int> down(64), crosswise(64), broadcast(64), any(64);
    const Memory<unsigned> ballot(64);
    for (const Order& order :
         {Order{}, Order{true, {}}, Order{false, 3}, Order{false, 3, true}, Order{false, 3, true, true}}) {
        set_order(order);
        ASSERT_EQ(launch(warp_kernel, 1, 64, down.first(), crosswise.first(), broadcast.first(),
                         ballot.first(), any.first()),
                  cudaSuccess);
        set_order({});
        for (int i = 0; i < 64; ++i) {
            EXPECT_EQ(down.first()[i], i % 32 + 4 < 32 ? i + 4 : i);
            EXPECT_EQ(crosswise.first()[i], i ^ 5);
            EXPECT_EQ(broadcast.first()[i], i / 32 * 32 + 7);
            EXPECT_EQ(ballot.first()[i], 0xAAAAAAAAu);
            EXPECT_EQ(any.first()[i], 1);
        }
    }
}

__global__ void some_return_kernel(int* out) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

TEST(CudaEmulator, ABarrierWaitsForThoseThatHaveNotReturned) {
    const Memory<int> out(32);
    for (const bool backward : {false, true}) {
        set_order({backward, {}});
        EXPECT_EQ(launch(some_return_kernel, 1, 96, out.first()), cudaSuccess);
        set_order({});
        EXPECT_EQ(out.values(), std::vector<int>(32, 1));
    }
}

__global__ void copy_kernel(const char* in, char* out, int place) {
    out[place] = in[place];
}

TEST(CudaEmulatorDeathTest, EndsAtMemoryThatIsNobodys) {
    const Memory<char> large(4096), small(4095);
    EXPECT_EXIT(launch(copy_kernel, 1, 1, large.first(), small.first(), 4096),
                testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(launch(copy_kernel, 1, 1, small.first(), large.first(), 4096),
                testing::KilledBySignal(SIGSEGV), "");
    // Where memory does not end with 16 bytes, it is found at last.
    EXPECT_DEATH(
        {
            large.first()[4095] = 0;
            launch(copy_kernel, 1, 1, large.first(), small.first(), 4095);
            cudaFree(small.first());
        },
        "written behind memory of 4095 bytes");
}

TEST(CudaEmulatorDeathTest, EndsBehindWhatIsHandedOutOfMemory) {
    const Memory<char> whole(8192), large(4096);
    const auto part_of = [&](std::size_t bytes) {
        return static_cast<char*>(hand_out(whole.first(), bytes));
    };
    char* const part = part_of(32);
    EXPECT_EQ(std::vector<char>(part, part + 32), std::vector<char>(32, '\xFF'));
    EXPECT_EQ(launch(copy_kernel, 1, 1, large.first(), part, 31), cudaSuccess);
    EXPECT_EXIT(launch(copy_kernel, 1, 1, part, large.first(), 32), testing::KilledBySignal(SIGSEGV), "");
    // Where a part does not end with 16 bytes, it is found when the next one is asked for.
    const auto write_behind = [&] {
        large.first()[31] = 0;
        launch(copy_kernel, 1, 1, large.first(), part_of(31), 31);
    };
    EXPECT_DEATH((write_behind(), part_of(1)), "written behind a part of 31 bytes");
    EXPECT_DEATH((write_behind(), cudaFree(whole.first())), "written behind a part of 31 bytes");
    // Nothing of the last part is left.
    part_of(32)[0] = 7;
    EXPECT_EQ(part_of(32)[0], '\xFF');
    EXPECT_EQ(part_of(8192), whole.first());
    EXPECT_EQ(hand_out(nullptr, 5), nullptr);
    const Memory<char> odd(100);
    static_cast<char*>(hand_out(odd.first(), 16))[15] = 7;  // nor is it behind the memory
}

__global__ void apart_kernel() {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __shfl_sync(0xFFFFFFFFu, 1, 0);
    }
}
__global__ void gone_kernel() {
    if (threadIdx.x == 3) return;
    __shfl_sync(0xFFFFFFFFu, 1, 0);
}

TEST(CudaEmulatorDeathTest, EndsWhereThreadsWaitForWhoNeverComes) {
    EXPECT_DEATH(launch(apart_kernel, 1, 32), "wait for one another for ever");
    for (const bool backward : {false, true}) {
        set_order({backward, {}});
        EXPECT_DEATH(launch(gone_kernel, 1, 32), "lane");
    }
    set_order({});
}

__global__ void mask_kernel(unsigned mask) {
    __shfl_xor_sync(mask, 1, 1);
    __syncwarp(mask);
}

TEST(CudaEmulatorDeathTest, EndsWhereAMaskLeavesOutLanesThatCome) {
    EXPECT_EQ(launch(mask_kernel, 1, 64, 0xFFFFFFFFu), cudaSuccess);
    EXPECT_EQ(launch(mask_kernel, 1, 16, 0xFFFFu), cudaSuccess);
    EXPECT_DEATH(launch(mask_kernel, 1, 64, 0xFFFFu),
                 "mask .* leaves out lanes .*cuda_emulator_test.cpp:[0-9]");
    EXPECT_DEATH(launch(mask_kernel, 1, 32, 1u), "mask .* leaves out lanes");
    EXPECT_DEATH(launch(mask_kernel, 1, 16, 0x7FFFu), "mask .* leaves out lanes");
}

__global__ void places_kernel(int* out, bool barrier, bool at_one) {
    const bool first = at_one || threadIdx.x < 16;
    if (barrier && first) __syncthreads();
    if (barrier && !first) __syncthreads();
    const auto own = static_cast<int>(threadIdx.x);
    if (!barrier && first) out[own] = __shfl_sync(0xFFFFFFFFu, own, 0);
    if (!barrier && !first) out[own] = __shfl_sync(0xFFFFFFFFu, own, 0);
}

TEST(CudaEmulatorDeathTest, EndsWhereThreadsMeetAtDifferentPlaces) {
    const Memory<int> out(32);
    for (const bool barrier : {false, true}) {
        EXPECT_EQ(launch(places_kernel, 1, 32, out.first(), barrier, true), cudaSuccess);
        EXPECT_DEATH(launch(places_kernel, 1, 32, out.first(), barrier, false),
                     "different places: .*_test.cpp:[0-9]+ and .*_test.cpp:[0-9]+");
    }
}

// ---- blocks that are there at once

const std::vector<Order> kOneAfterAnother{Order{}, Order{false, 1}, Order{false, 1, true}};
constexpr std::uint64_t kSeeds = 20;

Order interleaved(std::uint64_t seed) {
    return {false, seed, true, true};
}

// Of how many seeds the kernel does that with out, which is 0 at first.
template <typename Launch, typename Check>
std::uint64_t seeds_in_which(const Launch& launched, const Check& is_so) {
    std::uint64_t seeds = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        set_order(interleaved(seed));
        if (is_so(launched())) ++seeds;
        set_order({});
    }
    return seeds;
}

enum class Way { right, wrong };

// Adds up all numbers: each warp its own, and the last block that is done the warps' sums.
enum class LastBlock { right, without_barrier, counted_apart, by_index };
constexpr int kSumBlocks = 8, kWarpsOfSum = 4, kSumThreads = 32 * kWarpsOfSum;
struct Sums {
    int done = 0, all = 0;
    int of_warps[kSumBlocks * kWarpsOfSum] = {};
};
__global__ void last_block_kernel(const int* in, Sums* sums, LastBlock way) {
    __shared__ int before;
    int sum = in[blockIdx.x * kSumThreads + threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    if (threadIdx.x % 32 == 0) sums->of_warps[blockIdx.x * kWarpsOfSum + threadIdx.x / 32] = sum;
    if (way != LastBlock::without_barrier) __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (way == LastBlock::by_index) {
            before = static_cast<int>(blockIdx.x);
        } else if (way == LastBlock::counted_apart) {
            before = atomicAdd(&sums->done, 0);
            atomicExch(&sums->done, before + 1);
        } else {
            before = atomicAdd(&sums->done, 1);
        }
        __threadfence();
    }
    __syncthreads();
    if (before != kSumBlocks - 1 || threadIdx.x != 0) return;
    for (const int of_warp : sums->of_warps) sums->all += of_warp;
}

TEST(CudaEmulator, ALastBlockThatIsNotTheLastShowsWhereBlocksAreInterleaved) {
    constexpr int kAll = kSumBlocks * kSumThreads;
    const auto sum = [](LastBlock way) {
        const Memory<int> in(kAll);
        const Memory<Sums> sums(1);
        std::fill(in.first(), in.first() + kAll, 1);
        *sums.first() = {};
        EXPECT_EQ(launch(last_block_kernel, kSumBlocks, kSumThreads, in.first(), sums.first(), way),
                  cudaSuccess);
        return sums.first()->all;
    };
    for (const LastBlock way :
         {LastBlock::right, LastBlock::without_barrier, LastBlock::counted_apart, LastBlock::by_index}) {
        for (const Order& order : kOneAfterAnother) {
            if (way == LastBlock::by_index && order.seed) continue;
            set_order(order);
            EXPECT_EQ(sum(way), kAll) << static_cast<int>(way);
            set_order({});
        }
        const auto wrong = seeds_in_which([&] { return sum(way); }, [](int all) { return all != kAll; });
        EXPECT_EQ(wrong > 0, way != LastBlock::right) << static_cast<int>(way);
    }
}

// Each block passes on what the one before it has, with nothing that would make it wait.
__global__ void pass_on_kernel(int* out) {
    __shared__ int before;
    if (threadIdx.x == 0) before = blockIdx.x == 0 ? 0 : out[blockIdx.x - 1];
    __syncthreads();
    if (threadIdx.x == 40) out[blockIdx.x] = before + 1;
}

TEST(CudaEmulator, ABlockThatReadsWhatAnotherHasYetToWriteShowsWhereBlocksAreInterleaved) {
    const auto run = [] {
        const Memory<int> out(6);
        EXPECT_EQ(launch(pass_on_kernel, 6, 64, out.first()), cudaSuccess);
        return out.values();
    };
    const std::vector<int> right{1, 2, 3, 4, 5, 6};
    EXPECT_EQ(run(), right);
    EXPECT_EQ(seeds_in_which(run, [&](const auto& out) { return out != right; }), kSeeds);
}

// The larger of two numbers, by what one atomic says and another one does.
__global__ void largest_kernel(int* out, Way way) {
    const auto own = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (way == Way::right) {
        atomicMax(out, own);
    } else if (atomicMax(out, -1) < own) {
        atomicExch(out, own);
    }
}

TEST(CudaEmulator, AnAtomicThatIsTwoShowsWhereBlocksAreInterleaved) {
    const auto run = [](Way way) {
        const Memory<int> out(1);
        EXPECT_EQ(launch(largest_kernel, 4, 32, out.first(), way), cudaSuccess);
        return *out.first();
    };
    for (const Order& order : kOneAfterAnother) {
        set_order(order);
        EXPECT_EQ(run(Way::wrong), 127);
        set_order({});
    }
    EXPECT_EQ(seeds_in_which([&] { return run(Way::right); }, [](int out) { return out != 127; }), 0u);
    EXPECT_GE(seeds_in_which([&] { return run(Way::wrong); }, [](int out) { return out != 127; }),
              kSeeds / 2);
}

struct alignas(16) Rows {
    int at[kThreads];
};
template <int kTurns>
__device__ int turned_in_a_function(int own) {
    __shared__ Rows rows;
    for (int i = 0; i < kTurns; ++i) {
        rows.at[threadIdx.x] = own;
        __syncthreads();
        own = rows.at[(threadIdx.x + 1) % kThreads];
        __syncthreads();
    }
    return own;
}
// Blocks of an odd number use other variables, and have more barriers; of every third, most threads return at once.
__global__ void apart_from_others_kernel(float* fresh, int* out) {
    if (blockIdx.x % 3 == 2 && threadIdx.x >= 32) return;
    const auto own = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    __shared__ float numbers[kThreads];
    fresh[own] = numbers[threadIdx.x];
    numbers[threadIdx.x] = static_cast<float>(own);
    int sum = own;
    if (blockIdx.x % 3 != 2)
        sum = blockIdx.x % 2 == 0 ? turned_in_a_function<3>(own) : turned_in_a_function<5>(own);
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        if (blockIdx.x % 2 == 0) __syncthreads();
    }
    out[own] = numbers[threadIdx.x] == static_cast<float>(own) ? sum : -2;
}

TEST(CudaEmulator, BlocksThatAreThereAtOnceShareNothing) {
    constexpr int kMany = 11;
    const auto run = [] {
        const Memory<float> fresh(kMany * kThreads);
        const Memory<int> out(kMany * kThreads);
        EXPECT_EQ(launch(apart_from_others_kernel, kMany, kThreads, fresh.first(), out.first()), cudaSuccess);
        for (const float number : fresh.values()) EXPECT_TRUE(std::isnan(number)) << number;
        return out.values();
    };
    const auto right = run();
    EXPECT_EQ(std::ranges::count(right, -2), 0);
    EXPECT_EQ(std::ranges::count(right, -1), 3 * (kThreads - 32));
    EXPECT_EQ(right[0], 3 * 32 + 31 * 32 / 2);
    EXPECT_EQ(seeds_in_which(run, [&](const auto& out) { return out != right; }), 0u);
}

// Block 0 waits for the last one.
__global__ void wait_for_last_kernel(int* flag, int* out) {
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) atomicExch(flag, 7);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        while (atomicAdd(flag, 0) == 0) {
        }
    __syncthreads();
    if (blockIdx.x == 0) out[threadIdx.x] = atomicAdd(flag, 0);
}
__global__ void wait_plainly_kernel(const int* flag) {
    while (*const_cast<const volatile int*>(flag) == 0) {
    }
}

TEST(CudaEmulator, ABlockMayWaitForAnotherThatIsThere) {
    const auto run = [](unsigned blocks) {
        const Memory<int> flag(1), out(64);
        *flag.first() = 0;
        EXPECT_EQ(launch(wait_for_last_kernel, blocks, 64, flag.first(), out.first()), cudaSuccess);
        return out.values();
    };
    const auto is_right = [](const auto& out) { return out == std::vector<int>(64, 7); };
    EXPECT_EQ(seeds_in_which([&] { return run(2); }, is_right), kSeeds);
}

TEST(CudaEmulatorDeathTest, EndsWhereABlockWaitsForOneThatIsNotThere) {
    set_patience(std::chrono::milliseconds(50));
    const Memory<int> flag(1), out(64);
    *flag.first() = 0;
    const char* const says = "no barrier has opened .*=interleaved:SEED.*\\(block 0 0 0, thread 0 0 0\\)";
    EXPECT_DEATH(launch(wait_for_last_kernel, 2, 64, flag.first(), out.first()), says);
    EXPECT_DEATH(launch(wait_plainly_kernel, 1, 1, flag.first()), says);
    set_order(interleaved(1));
    EXPECT_DEATH(launch(wait_plainly_kernel, 2, 1, flag.first()), "no barrier has opened");
    set_order({});
    set_patience(std::chrono::seconds(10));
}

TEST(CudaEmulator, RefusesWhatIsBeyondALaunchsLimits) {
    for (const auto& [blocks, threads] : {std::pair{dim3(0), dim3(32)},
                                          {dim3(1, 65536), dim3(32)},
                                          {dim3(1), dim3(1025)},
                                          {dim3(1), dim3(64, 32)}}) {
        EXPECT_EQ(launch(apart_kernel, blocks, threads), cudaErrorInvalidConfiguration);
        EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
        EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    }
}

TEST(CudaEmulator, ALaunchsSharedMemoryIsNoLargerThanItsKernelMayHave) {
    const auto launched = [](std::size_t bytes) {
        cudaLaunchConfig_t config{};
        config.gridDim = config.blockDim = 1;
        config.dynamicSmemBytes = bytes;
        const cudaError_t result = cudaLaunchKernelEx(&config, apart_kernel);
        EXPECT_EQ(cudaGetLastError(), result);
        return result;
    };
    const auto may_have = [](int bytes) {
        const cudaError_t result = cudaFuncSetAttribute(reinterpret_cast<const void*>(apart_kernel),
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        EXPECT_EQ(cudaGetLastError(), result);
        return result;
    };
    EXPECT_EQ(launched(47 << 10), cudaSuccess);
    EXPECT_EQ(launched(48 << 10), cudaErrorInvalidValue) << "the kernel's own count, too";
    EXPECT_EQ(may_have((227 << 10) + 1), cudaErrorInvalidValue);
    EXPECT_EQ(may_have(227 << 10), cudaSuccess);
    EXPECT_EQ(launched(227 << 10), cudaSuccess);
    EXPECT_EQ(launched((227 << 10) + 1), cudaErrorInvalidValue);
}

// ---- works that are late

class CudaEmulatorStreams : public testing::Test {
 protected:
    CudaEmulatorStreams() {
        set_late(true);
        for (cudaStream_t* stream : {&one_, &other_})
            cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    }
    ~CudaEmulatorStreams() override {
        cudaEventDestroy(event_);
        for (const cudaStream_t stream : {one_, other_}) cudaStreamDestroy(stream);
        set_late(false);
    }

    cudaStream_t one_ = nullptr, other_ = nullptr;
    cudaEvent_t event_ = nullptr;
};
using CudaEmulatorStreamsDeathTest = CudaEmulatorStreams;

__global__ void add_kernel(const int* in, int* out) {
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
void queue_add(cudaStream_t stream, const int* in, int* out) {
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 32;
    config.stream = stream;
    EXPECT_EQ(cudaLaunchKernelEx(&config, add_kernel, in, out), cudaSuccess);
}
const std::vector<int> kFresh(32, -1);  // what memory holds that nobody has written

TEST_F(CudaEmulatorStreams, AKernelRunsWhenItIsWaitedFor) {
    const Memory<int> a(32), b(32), c(32);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    queue_add(one_, a.first(), b.first());
    cudaEventRecord(event_, one_);
    queue_add(one_, b.first(), c.first());
    EXPECT_EQ(a.values(), kFresh);
    EXPECT_EQ(b.values(), kFresh);
    cudaEventSynchronize(event_);
    EXPECT_EQ(b.values(), std::vector<int>(32, 1));
    EXPECT_EQ(c.values(), kFresh);
    cudaStreamSynchronize(other_);
    EXPECT_EQ(c.values(), kFresh);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(c.values(), std::vector<int>(32, 2));
}

TEST_F(CudaEmulatorStreams, AnEventThatIsAskedForComes) {
    const Memory<int> a(32);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    cudaEventRecord(event_, one_);
    EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
    EXPECT_EQ(a.values(), std::vector<int>(32, 0));
}

TEST_F(CudaEmulatorStreams, WhatComesAfterAnEventRunsAfterIt) {
    const Memory<int> a(32), b(32), c(32);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    queue_add(one_, a.first(), b.first());
    cudaEventRecord(event_, one_);
    cudaStreamWaitEvent(other_, event_, 0);
    queue_add(other_, b.first(), c.first());
    cudaStreamSynchronize(other_);
    EXPECT_EQ(c.values(), std::vector<int>(32, 2));
}

TEST_F(CudaEmulatorStreams, OtherStreamsAreNotWaitedFor) {
    const Memory<int> a(32), b(32);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    cudaMemsetAsync(b.first(), 0, 128, other_);
    cudaStreamSynchronize(other_);
    EXPECT_EQ(a.values(), kFresh);
    EXPECT_EQ(b.values(), std::vector<int>(32, 0));
}

TEST_F(CudaEmulatorStreams, FreeingWaitsForAll) {
    const Memory<int> a(32);
    {
        const Memory<int> b(32);
        cudaMemsetAsync(a.first(), 0, 128, one_);
        queue_add(one_, a.first(), b.first());
    }
    EXPECT_EQ(a.values(), std::vector<int>(32, 0));
}

TEST_F(CudaEmulatorStreams, ACopyToTheHostIsLateWhereItsMemoryIsPinned) {
    const Memory<int> a(32);
    void* pinned = nullptr;
    ASSERT_EQ(cudaHostAlloc(&pinned, 128, cudaHostAllocDefault), cudaSuccess);
    const int* const first = static_cast<int*>(pinned);
    std::vector<int> pageable(32, 5);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    cudaMemcpyAsync(pinned, a.first(), 128, cudaMemcpyDeviceToHost, one_);
    EXPECT_EQ(std::vector<int>(first, first + 32), kFresh);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(std::vector<int>(first, first + 32), std::vector<int>(32, 0));
    cudaMemsetAsync(a.first(), 1, 128, one_);
    cudaMemcpyAsync(pageable.data(), a.first(), 128, cudaMemcpyDeviceToHost, one_);
    EXPECT_EQ(pageable, std::vector<int>(32, 0x01010101));
    cudaFreeHost(pinned);
}

TEST_F(CudaEmulatorStreamsDeathTest, EndsWhereTheHostChangesWhatIsStillToBeCopied) {
    const Memory<int> a(32);
    std::vector<int> numbers(32, 5);
    const auto copy = [&] { cudaMemcpyAsync(a.first(), numbers.data(), 128, cudaMemcpyHostToDevice, one_); };
    copy();
    cudaStreamSynchronize(one_);
    EXPECT_EQ(a.values(), numbers);
    EXPECT_DEATH(
        {
            copy();
            numbers[31] = 6;
            cudaStreamSynchronize(one_);
        },
        "the host has changed memory that is still to be copied");
}

TEST_F(CudaEmulatorStreamsDeathTest, EndsWhereNothingOrdersTwoStreams) {
    const Memory<int> a(32), b(32), c(32);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    queue_add(one_, a.first(), b.first());
    // What reads waits for what writes, and the other way round; two that read do not wait.
    EXPECT_DEATH(queue_add(other_, b.first(), c.first()),
                 "a race: kernel .* reads memory that kernel .* writes");
    EXPECT_DEATH(cudaMemsetAsync(a.first(), 0, 128, other_), "what clears memory writes memory that");
    cudaEventRecord(event_, one_);
    queue_add(one_, a.first(), b.first());
    cudaStreamWaitEvent(other_, event_, 0);
    queue_add(other_, a.first(), c.first());
    // Not for what comes after the event.
    EXPECT_DEATH(queue_add(other_, b.first(), c.first()), "a race");
    cudaStreamSynchronize(one_);
    queue_add(other_, b.first(), c.first());
    cudaStreamSynchronize(other_);
    EXPECT_EQ(c.values(), std::vector<int>(32, 2));
}

TEST_F(CudaEmulatorStreamsDeathTest, AStreamMayWaitByWayOfAThird) {
    const Memory<int> a(32), b(32);
    cudaStream_t third = nullptr;
    cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    cudaEventRecord(event_, one_);
    cudaStreamWaitEvent(other_, event_, 0);
    cudaEventRecord(event_, other_);
    cudaStreamWaitEvent(third, event_, 0);
    queue_add(third, a.first(), b.first());
    EXPECT_DEATH(cudaMemsetAsync(b.first(), 0, 128, other_), "a race");
    cudaStreamSynchronize(third);
    EXPECT_EQ(b.values(), std::vector<int>(32, 1));
    cudaStreamDestroy(third);
}

TEST_F(CudaEmulatorStreams, AGraphRunsEachTimeItIsLaunchedWithTheArgumentsOfItsCapture) {
    const Memory<int> a(32), b(32);
    const int* from = a.first();
    cudaMemsetAsync(b.first(), 0, 128, one_);
    cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(a.first(), 0, 128, one_);
    queue_add(one_, from, a.first());
    queue_add(one_, from, b.first());
    from = nullptr;
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(b.values(), std::vector<int>(32, 0)) << "a capture runs nothing";
    for (int i = 0; i < 2; ++i) {
        cudaMemsetAsync(b.first(), 0, 128, one_);
        cudaStreamSynchronize(one_);
        EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
        EXPECT_EQ(b.values(), std::vector<int>(32, 0)) << "it is late, as all is";
        if (i == 1) cudaGraphExecDestroy(executable);  // while it runs
        cudaStreamSynchronize(one_);
        EXPECT_EQ(b.values(), std::vector<int>(32, 2));
    }
}

TEST_F(CudaEmulatorStreams, ANodeHasOtherArgumentsFromTheNextLaunchOn) {
    const Memory<int> a(32), b(32), c(32);
    const auto zero = [&] {
        for (const auto* all : {&a, &b, &c}) cudaMemsetAsync(all->first(), 0, 128, one_);
    };
    cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
    queue_add(one_, a.first(), b.first());
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(cudaStreamGetCaptureInfo(one_, &status, nullptr, nullptr, &last, &edges, &count), cudaSuccess);
    ASSERT_EQ(status, cudaStreamCaptureStatusActive);
    ASSERT_EQ(count, 1);
    const cudaGraphNode_t node = *last;
    queue_add(one_, b.first(), b.first());
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    zero();
    EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
    const int* in = a.first();
    int* out = c.first();
    std::array<void*, 2> places{&in, &out};
    cudaKernelNodeParams other{};
    other.func = reinterpret_cast<void*>(add_kernel);
    other.gridDim = 1;
    other.blockDim = 32;
    other.kernelParams = places.data();
    EXPECT_EQ(cudaGraphExecKernelNodeSetParams(executable, node, &other), cudaSuccess);
    out = nullptr;
    cudaStreamSynchronize(one_);
    EXPECT_EQ(b.values(), std::vector<int>(32, 2)) << "what was launched before";
    EXPECT_EQ(c.values(), std::vector<int>(32, 0));
    EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(b.values(), std::vector<int>(32, 3));
    EXPECT_EQ(c.values(), std::vector<int>(32, 1));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

TEST_F(CudaEmulatorStreams, ACaptureFailsWithWhatMayNotBeCalledMeanwhile) {
    const Memory<int> a(32);
    cudaEvent_t before = nullptr;
    cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
    cudaEventRecord(before, one_);
    int number = 0;
    void* place = nullptr;
    const auto launch_on_legacy = [&] { return launch(add_kernel, 1, 32, a.first(), a.first()); };
    struct Case {
        std::function<cudaError_t()> call;
        cudaError_t result;
    };
    const std::vector<Case> cases{
        {[&] { return cudaStreamSynchronize(one_); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaMalloc(&place, 4); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaFree(a.first()); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaHostAlloc(&place, 4, cudaHostAllocDefault); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaEventQuery(before); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaEventSynchronize(before); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaStreamWaitEvent(one_, before, 0); }, cudaErrorStreamCaptureIsolation},
        {[&] {
             cudaEventRecord(event_, one_);
             return cudaEventQuery(event_);
         },
         cudaErrorCapturedEvent},
        {launch_on_legacy, cudaErrorStreamCaptureImplicit},
        {[&] { return cudaMemcpyAsync(&number, a.first(), 4, cudaMemcpyDeviceToHost, one_); },
         cudaErrorStreamCaptureUnsupported},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
        cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
        EXPECT_EQ(cases[i].call(), cases[i].result) << i;
        EXPECT_EQ(cudaMemsetAsync(a.first(), 0, 128, one_), cudaErrorStreamCaptureInvalidated) << i;
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated) << i;
        EXPECT_EQ(graph, nullptr);
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorIllegalState);
    EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess) << "as ever, once it has ended";
    cudaGetLastError();
    cudaEventDestroy(before);
}

TEST_F(CudaEmulatorStreams, ACaptureFailsWhereAStreamDoesNotComeBack) {
    const Memory<int> a(32), b(32);
    for (const bool joins : {false, true}) {
        cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
        cudaMemsetAsync(a.first(), 0, 128, one_);
        cudaEventRecord(event_, one_);
        cudaStreamWaitEvent(other_, event_, 0);
        queue_add(other_, a.first(), b.first());
        cudaEventRecord(event_, other_);
        if (joins) cudaStreamWaitEvent(one_, event_, 0);
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(one_, &graph), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
        EXPECT_EQ(graph != nullptr, joins);
        cudaGraphDestroy(graph);
    }
    cudaGetLastError();
    cudaEventRecord(event_, one_);
    EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
}

}  // namespace
