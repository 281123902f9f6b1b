// SPDX-License-Identifier: Apache-2.0
//
// That the emulated GPU computes what a GPU does, and that it shows the faults for which it is there: without
// that the tests of the trainer's kernels on it would prove little.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

using dp::cuda_emulator::Order;
using dp::cuda_emulator::set_order;

constexpr int kThreads = 96, kBlocks = 3;

template <typename Kernel, typename... Arguments>
cudaError_t launch(Kernel kernel, dim3 blocks, dim3 threads, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Memory of the GPU, which the host can read here.
template <typename T>
class Memory {
 public:
    explicit Memory(std::size_t count) : count_(count) {
        void* place = nullptr;
        if (cudaMalloc(&place, count * sizeof(T)) == cudaSuccess) first_ = static_cast<T*>(place);
    }
    ~Memory() { cudaFree(first_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    T* first() const { return first_; }
    std::vector<T> values() const { return {first_, first_ + count_}; }

 private:
    std::size_t count_;
    T* first_ = nullptr;
};

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
    for (const Order& order : {Order{}, Order{true, {}}, Order{false, 1}, Order{false, 2}}) {
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
    for (const Order& order : {Order{}, Order{true, {}}, Order{false, 3}}) {
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

}  // namespace
