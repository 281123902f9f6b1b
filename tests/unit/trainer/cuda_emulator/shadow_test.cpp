// SPDX-License-Identifier: Apache-2.0
//
// That the shadow of the emulated GPU's memory finds the faults for which it is there, and none in kernels that are right. Compiled
// as the kernels of lib/emulated_cuda_checked are.
#include <gtest/gtest.h>

#include <vector>

#include "accesses.hpp"
#include "kernel_tests.hpp"

namespace {

using namespace dp::cuda_emulator;

struct alignas(16) Four {
    int at[4];
};

// ---- what it makes of accesses, one after another, to the same four bytes

struct Step {
    Access access;
    std::uint32_t block, barriers, exchanges;
    std::uint16_t thread;
    std::uint8_t bytes = 0xF;
};

Fault::Kind last_of(std::vector<Step> steps, bool is_shared) {
    Cell cell;
    Fault fault;
    for (const Step& step : steps) {
        EXPECT_EQ(fault.kind, Fault::none);
        fault = note_access(cell, step.bytes, step.access, is_shared,
                            {10, step.block, step.barriers, step.exchanges, step.thread});
    }
    return fault.kind;
}

TEST(Shadow, KnowsWhatOrdersTwoAccesses) {
    constexpr auto kRead = Access::read, kWrite = Access::write, kAtomic = Access::atomic;
    struct Case {
        std::vector<Step> steps;
        Fault::Kind global, shared;
    };
    const Case cases[] = {
        // One thread, and a warp beside an exchange.
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 0, 1}, {kWrite, 10, 10, 0, 1}}, Fault::none, Fault::none},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 0, 2}}, Fault::after_write, Fault::after_write},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 1, 2}}, Fault::none, Fault::none},
        {{{kWrite, 10, 10, 0, 1}, {kWrite, 10, 10, 0, 2}}, Fault::after_write, Fault::after_write},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 1, 1}, {kRead, 10, 10, 1, 2}, {kWrite, 10, 10, 1, 1}},
         Fault::after_read,
         Fault::after_read},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 1, 1}, {kRead, 10, 10, 1, 2}, {kWrite, 10, 10, 2, 1}},
         Fault::none,
         Fault::none},
        // Warps beside a barrier; an exchange is of one warp.
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 10, 5, 40}}, Fault::after_write, Fault::after_write},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 11, 0, 40}}, Fault::none, Fault::none},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 11, 0, 40}, {kWrite, 10, 11, 0, 1}},
         Fault::after_read,
         Fault::after_read},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 11, 0, 40}, {kRead, 10, 11, 0, 1}, {kWrite, 10, 11, 0, 1}},
         Fault::after_read,
         Fault::after_read},
        {{{kWrite, 10, 10, 0, 1}, {kRead, 10, 11, 0, 40}, {kWrite, 10, 12, 0, 1}}, Fault::none, Fault::none},
        // Blocks, between which nothing is in order, and launches.
        {{{kWrite, 10, 10, 0, 1}, {kWrite, 20, 20, 0, 1}}, Fault::after_write, Fault::none},
        {{{kRead, 10, 10, 0, 1}, {kRead, 20, 20, 0, 1}, {kWrite, 20, 21, 0, 1}},
         Fault::after_read,
         Fault::unwritten},
        {{{kWrite, 5, 9, 0, 1}, {kWrite, 10, 10, 0, 40}}, Fault::none, Fault::none},
        // Blocks that are there at once: the one that began later was there before.
        {{{kWrite, 20, 21, 0, 1}, {kRead, 10, 11, 0, 1}}, Fault::after_write, Fault::after_write},
        {{{kRead, 20, 21, 0, 1}, {kRead, 10, 10, 0, 1}, {kWrite, 20, 22, 0, 1}},
         Fault::after_read,
         Fault::unwritten},
        {{{kAtomic, 20, 20, 0, 1}, {kAtomic, 10, 11, 0, 1}, {kAtomic, 20, 21, 0, 1}},
         Fault::none,
         Fault::unwritten},
        {{{kAtomic, 20, 20, 0, 1}, {kAtomic, 10, 11, 0, 1}, {kRead, 20, 21, 0, 1}},
         Fault::after_write,
         Fault::unwritten},
        // Atomics, among themselves and with others.
        {{{kAtomic, 10, 10, 0, 1}, {kAtomic, 10, 10, 0, 40}, {kAtomic, 20, 20, 0, 1}},
         Fault::none,
         Fault::unwritten},
        {{{kWrite, 10, 10, 0, 1}, {kAtomic, 10, 10, 0, 40}}, Fault::after_write, Fault::after_write},
        {{{kWrite, 10, 10, 0, 1}, {kAtomic, 10, 10, 0, 1}, {kAtomic, 10, 10, 0, 40}},
         Fault::after_write,
         Fault::after_write},
        {{{kWrite, 10, 10, 0, 1}, {kAtomic, 10, 10, 1, 1}, {kAtomic, 10, 10, 1, 2}},
         Fault::none,
         Fault::none},
        {{{kAtomic, 10, 10, 0, 1}, {kRead, 10, 10, 0, 40}}, Fault::after_write, Fault::unwritten},
        {{{kAtomic, 10, 10, 0, 1}, {kAtomic, 10, 10, 0, 40}, {kRead, 10, 10, 0, 40}},
         Fault::after_write,
         Fault::unwritten},
        {{{kAtomic, 10, 10, 0, 1}, {kAtomic, 20, 20, 0, 1}, {kRead, 20, 21, 0, 1}},
         Fault::after_write,
         Fault::unwritten},
        {{{kAtomic, 10, 10, 0, 1}, {kRead, 10, 11, 0, 40}}, Fault::none, Fault::unwritten},
        // Different bytes.
        {{{kWrite, 10, 10, 0, 1, 0x3}, {kWrite, 10, 10, 0, 40, 0xC}}, Fault::none, Fault::none},
        {{{kWrite, 10, 10, 0, 1, 0x3}, {kRead, 10, 11, 0, 1, 0xC}}, Fault::none, Fault::unwritten},
        {{{kWrite, 10, 10, 0, 1, 0x3}, {kWrite, 10, 10, 0, 40, 0xC}, {kRead, 10, 11, 0, 1}},
         Fault::none,
         Fault::none},
        {{{kWrite, 10, 10, 0, 1, 0x3}, {kWrite, 10, 10, 0, 40, 0x6}}, Fault::after_write, Fault::after_write},
    };
    for (const Case& one : cases) {
        const auto number = &one - cases;
        // Where shared memory was not written, the first access to it ends the program.
        const auto& first = one.steps.front();
        if (one.shared != Fault::unwritten || first.access == kWrite) {
            EXPECT_EQ(last_of(one.steps, true), one.shared) << number;
        }
        EXPECT_EQ(last_of(one.steps, false), one.global) << number;
    }
    EXPECT_EQ(last_of({{kRead, 10, 10, 0, 1}}, true), Fault::unwritten);
    EXPECT_EQ(last_of({{kAtomic, 10, 10, 0, 1}}, true), Fault::unwritten);
    EXPECT_EQ(last_of({{kWrite, 5, 9, 0, 1}, {kRead, 10, 10, 0, 1}}, true), Fault::unwritten);
}

// ---- kernels

enum class Way { right, wrong };

__global__ void between_warps_kernel(int* out, Way way) {
    __shared__ int numbers[64];
    numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (way == Way::right) __syncthreads();
    out[threadIdx.x] = numbers[63 - threadIdx.x];
}
__global__ void between_lanes_kernel(int* out, Way way) {
    __shared__ int numbers[32];
    numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (way == Way::right) __syncwarp();
    out[threadIdx.x] = numbers[31 - threadIdx.x];
}
__global__ void written_again_kernel(int* out, Way way) {
    __shared__ int number;
    for (int turn = 0; turn < 2; ++turn) {
        if (threadIdx.x == 0) number = turn;
        __syncthreads();
        out[threadIdx.x] = number;
        if (way == Way::right) __syncthreads();
    }
}
__global__ void unwritten_kernel(int* out, Way way) {
    __shared__ int numbers[64];
    if (way == Way::right || threadIdx.x < 32) numbers[threadIdx.x] = 1;
    out[threadIdx.x] = numbers[threadIdx.x];
}
__global__ void atomic_kernel(int* out, Way way) {
    __shared__ int largest;
    if (threadIdx.x == 0) largest = 0;
    if (way == Way::right) __syncthreads();
    atomicMax(&largest, static_cast<int>(threadIdx.x));
    __syncthreads();
    out[threadIdx.x] = largest;
}
// Blocks that all change one number.
__global__ void between_blocks_kernel(int* out, Way way) {
    const auto own = static_cast<int>(blockIdx.x);
    if (way == Way::right) {
        atomicMax(out, own);
        atomicExch(out + 1, atomicCAS(out + 2, own, own));
    } else if (*out < own) {
        *out = own;
    }
}
// Each warp writes a number, and the last block adds them up: what is missing for that?
enum class Missing { nothing, fence, barrier, acquire, acquire_of_volatile };
__device__ void add_up_last(int* out, Missing what) {
    int *const counted = out, *const sum = out + 1, *const of_warps = out + 2;
    if (threadIdx.x % 32 == 0) of_warps[blockIdx.x * 2 + threadIdx.x / 32] = 1;
    if (what != Missing::barrier) __syncthreads();
    __shared__ int before;
    if (threadIdx.x == 0) {
        if (what != Missing::fence) __threadfence();
        before = atomicAdd(counted, 1);
        if (what != Missing::acquire && what != Missing::acquire_of_volatile) __threadfence();
    }
    __syncthreads();
    if (before != static_cast<int>(gridDim.x) - 1 || threadIdx.x != 40) return;
    for (unsigned i = 0; i < 2 * gridDim.x; ++i) {
        if (what == Missing::acquire_of_volatile)
            *sum += static_cast<volatile int*>(of_warps)[i];
        else
            *sum += of_warps[i];
    }
}
__global__ void unfenced_kernel(int* out, Way way) {
    add_up_last(out, way == Way::right ? Missing::nothing : Missing::fence);
}
__global__ void counted_early_kernel(int* out, Way way) {
    add_up_last(out, way == Way::right ? Missing::nothing : Missing::barrier);
}
// A reader needs a fence, too, or reads what no cache of its own keeps, as the CUDA C++ Programming Guide's sum over blocks does.
__global__ void unacquired_kernel(int* out, Way way) {
    add_up_last(out, way == Way::right ? Missing::acquire_of_volatile : Missing::acquire);
}
// Each thread after the barrier, instead of the one with the atomic before it.
__global__ void acquired_by_all_kernel(int* out, Way way) {
    int *const counted = out, *const of_blocks = out + 2;
    __shared__ int before;
    if (threadIdx.x == 0) {
        of_blocks[blockIdx.x] = 1;
        __threadfence();
        before = atomicAdd(counted, 1);
    }
    __syncthreads();
    if (before != static_cast<int>(gridDim.x) - 1) return;
    if (way == Way::right || threadIdx.x == 7) __threadfence();
    if (threadIdx.x < gridDim.x) out[16 + threadIdx.x] = of_blocks[threadIdx.x];
}
__global__ void short_kernel(int* out, Way way) {
    __shared__ int numbers[63], others[64];
    int* const place = way == Way::right ? others : numbers;
    place[threadIdx.x] = 1;
    out[threadIdx.x] = place[threadIdx.x];
}
// Behind what has a constructor, as a bf16 has, the compiler notes whether it was called.
struct Half {
    short at;
    Half() {}
};
__global__ void constructed_kernel(int* out, Way way) {
    __shared__ Half numbers[64];
    Half* const place = numbers + (way == Way::right ? 0 : 1);
    place[threadIdx.x].at = 1;
    out[threadIdx.x] = place[threadIdx.x].at;
}
__global__ void index_kernel(int* out, Way way) {
    __shared__ int rows[2][64];
    const unsigned column = threadIdx.x + (way == Way::right ? 0 : 1);
    rows[0][column] = 1;
    out[threadIdx.x] = rows[0][column];
}
__global__ void aligned_kernel(int* out, Way way) {
    const Four four{};
    int* const place = way == Way::right ? out : out + 1;
    *reinterpret_cast<Four*>(place + 4 * static_cast<std::int64_t>(threadIdx.x % 8)) = four;
}
// An exchange orders the lanes of a warp, and not those of two.
__global__ void exchange_kernel(int* out, Way way) {
    out[threadIdx.x] = 0;
    const unsigned sum = __shfl_xor_sync(0xFFFFFFFFu, threadIdx.x, 1) + __ballot_sync(0xFFFFFFFFu, 1);
    out[threadIdx.x ^ (way == Way::right ? 1 : 32)] = static_cast<int>(sum);
}

TEST(ShadowDeathTest, EndsKernelsThatAreWrongAndNoOthers) {
    struct Case {
        void (*kernel)(int*, Way);
        unsigned blocks, threads;
        const char* says;
    };
    for (const Case& one : {
             Case{between_warps_kernel, 1, 64,
                  "a thread reads shared numbers, |a race: a thread .*s shared numbers "},
             {between_lanes_kernel, 1, 32,
              "a thread reads shared numbers, |a race: a thread .*s shared numbers "},
             {written_again_kernel, 1, 64,
              "a race: a thread .*s shared number that thread [0-9]+ of its block .*s, .*at "
              ".*shadow_test.cpp:[0-9]"},
             {unwritten_kernel, 1, 64,
              "reads shared numbers, which no thread of its block has written, at .*shadow_test.cpp:[0-9]"},
             {atomic_kernel, 1, 64, "a thread .* shared largest"},
             {between_blocks_kernel, 3, 1, "a race: a thread .*s global memory that another block .*s"},
             {unfenced_kernel, 6, 64, "a race: a thread reads global memory that another block writes"},
             {counted_early_kernel, 6, 64, "a race: a thread reads global memory that another block writes"},
             {unacquired_kernel, 6, 64,
              "a race: a thread reads global memory that another block writes, with nothing that orders "
              "them: this one has had no fence since its atomic"},
             {acquired_by_all_kernel, 6, 64, "has had no fence since its atomic"},
             {short_kernel, 1, 64,
              "writes 4 bytes beyond the end of shared numbers, at .*shadow_test.cpp:[0-9]"},
             {constructed_kernel, 1, 64,
              "writes 2 bytes beyond the end of shared numbers, at .*shadow_test.cpp:[0-9]"},
             {index_kernel, 1, 64, "an index beyond an array, 64, at .*shadow_test.cpp:[0-9]"},
             {aligned_kernel, 1, 8, "not a multiple"},
             {exchange_kernel, 1, 64,
              "a race: a thread writes global memory that thread [0-9]+ of its block writes"},
         }) {
        for (const Order& order : {Order{}, Order{true, {}}, Order{false, 1}, Order{false, 1, true},
                                   Order{false, 1, true, true}}) {
            const Memory<int> out(64);
            *out.first() = 0;
            set_order(order);
            EXPECT_EQ(launch(one.kernel, one.blocks, one.threads, out.first(), Way::right), cudaSuccess);
            *out.first() = 0;
            if (!order.backward) {
                EXPECT_DEATH(launch(one.kernel, one.blocks, one.threads, out.first(), Way::wrong), one.says);
            }
            set_order({});
        }
    }
}

__global__ void copy_kernel(const char* in, char* out, std::int64_t from, std::int64_t to) {
    out[to] = in[from];
}

TEST(ShadowDeathTest, EndsAtMemoryThatIsNobodysAtOnce) {
    const Memory<char> large(8192), small(4095);
    EXPECT_EQ(launch(copy_kernel, 1, 1, large.first(), small.first(), 8191, 4094), cudaSuccess);
    EXPECT_DEATH(launch(copy_kernel, 1, 1, large.first(), small.first(), 0, 4095),
                 "writes 1 byte beyond the end of memory of 4095 bytes");
    EXPECT_DEATH(launch(copy_kernel, 1, 1, small.first(), large.first(), 4095, 0),
                 "reads 1 byte beyond the end of memory of 4095 bytes");
    EXPECT_DEATH(launch(copy_kernel, 1, 1, small.first(), large.first(), -1, 0), "reads 1 byte");
    const std::vector<char> of_host(100);
    EXPECT_DEATH(launch(copy_kernel, 1, 1, of_host.data(), large.first(), 0, 0),
                 "reads 1 byte of memory that is not the GPU's");
}

TEST(ShadowDeathTest, EndsAtWhatIsAroundAPartOfMemory) {
    const Memory<char> whole(8192), other(4096);
    const auto part_of = [&](std::size_t bytes) {
        return static_cast<char*>(hand_out(whole.first(), bytes));
    };
    EXPECT_EQ(launch(copy_kernel, 1, 1, other.first(), whole.first(), 0, 0), cudaSuccess);
    char* const part = part_of(31);
    EXPECT_EQ(launch(copy_kernel, 1, 1, other.first(), part, 0, 30), cudaSuccess);
    EXPECT_EQ(launch(copy_kernel, 1, 1, part, other.first(), 0, 0), cudaSuccess);
    EXPECT_DEATH(launch(copy_kernel, 1, 1, other.first(), part, 0, 31),
                 "writes 1 byte beyond the end of a part of 31 bytes");
    EXPECT_DEATH(launch(copy_kernel, 1, 1, part, other.first(), -1, 0),
                 "reads 1 byte before a part of 31 bytes");
    EXPECT_EQ(launch(copy_kernel, 1, 1, other.first(), part_of(8192), 0, 0), cudaSuccess);
}

}  // namespace
