// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace dp::cuda_emulator {
namespace {

constexpr unsigned kMostThreads = 1024, kMostInY = 65535, kWarp = 32;
constexpr std::size_t kStack = std::size_t{256} << 10;

[[noreturn]] void refuse(const char* what) {
    std::fprintf(stderr, "emulated GPU: %s (block %u %u %u, thread %u %u %u)\n", what, blockIdx.x, blockIdx.y,
                 blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    std::abort();
}

// Where threads wait until all that have not returned are there.
struct Barrier {
    unsigned arrived = 0, generation = 0;
    bool said[2] = {};  // by the generation's parity: one is read while the next fills
};

struct Thread {
    jmp_buf place;  // where it goes on
    uint3 index{};
    bool is_ready = false, has_returned = true;
};

struct Warp {
    Barrier barrier;
    unsigned running = 0, lanes = 0;
    Lanes given[2];  // by the barrier's parity
};

Order from_environment() {
    const char* said = std::getenv("DP_CUDA_EMULATOR_ORDER");
    const std::string name = said == nullptr ? "forward" : said;
    if (name == "forward") return {};
    if (name == "backward") return {true, std::nullopt};
    return {false, std::stoull(name)};
}

struct Gpu {
    std::mutex one_kernel;
    Order order = from_environment();
    std::mt19937_64 random;
    char* stacks = nullptr;
    std::vector<Thread> threads = std::vector<Thread>(kMostThreads);
    std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
    Barrier block;
    unsigned count = 0, running = 0;  // threads of the block; those that have not returned
    unsigned current = 0;
    jmp_buf scheduler;
    ucontext_t beginning;
    const std::function<void()>* kernel = nullptr;
};

Gpu& gpu() {
    static Gpu the_gpu;
    return the_gpu;
}

// Back to the scheduler. From here on `at` is where a thread goes on.
void switch_away(Gpu& g) {
    if (_setjmp(g.threads[g.current].place) == 0) _longjmp(g.scheduler, 1);
}

void wake(Gpu& g, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; ++i) g.threads[i].is_ready = !g.threads[i].has_returned;
}

// Where the last one of `running` arrives, those of first ... end - 1 may go on.
bool arrive(Gpu& g, Barrier& barrier, unsigned running, unsigned first, unsigned end) {
    if (barrier.arrived < running) return false;
    barrier.arrived = 0;
    barrier.said[++barrier.generation % 2] = false;
    wake(g, first, end);
    return true;
}

void wait(Gpu& g, Barrier& barrier, unsigned running, unsigned first, unsigned end) {
    ++barrier.arrived;
    if (arrive(g, barrier, running, first, end)) return;
    g.threads[g.current].is_ready = false;
    switch_away(g);
}

// A thread's whole life: it runs kernel after kernel on its stack.
void live() {
    Gpu& g = gpu();
    for (;;) {
        switch_away(g);
        (*g.kernel)();
        Thread& thread = g.threads[g.current];
        thread.has_returned = true;
        thread.is_ready = false;
        Warp& warp = g.warps[g.current / kWarp];
        --warp.running;
        if (warp.barrier.arrived > 0) refuse("a lane returns while others of its warp wait for it");
        if (--g.running > 0) arrive(g, g.block, g.running, 0, g.count);
    }
}

void enter(Gpu& g, unsigned number) {
    g.current = number;
    threadIdx = g.threads[number].index;
    if (_setjmp(g.scheduler) == 0) _longjmp(g.threads[number].place, 1);
}

// Once in a process: every thread on its stack, waiting for its first kernel.
void make_threads(Gpu& g) {
    void* memory = mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("no memory for the threads' stacks");
    g.stacks = static_cast<char*>(memory);
    for (g.current = 0; g.current < kMostThreads; ++g.current) {
        getcontext(&g.beginning);
        g.beginning.uc_stack.ss_sp = g.stacks + kStack * g.current;
        g.beginning.uc_stack.ss_size = kStack;
        makecontext(&g.beginning, live, 0);
        if (_setjmp(g.scheduler) == 0) setcontext(&g.beginning);
    }
}

std::vector<unsigned> turns(Gpu& g, unsigned count) {
    std::vector<unsigned> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (g.order.backward) std::reverse(numbers.begin(), numbers.end());
    if (g.order.seed) std::shuffle(numbers.begin(), numbers.end(), g.random);
    return numbers;
}

void run_block(Gpu& g, const std::vector<unsigned>& order) {
    g.block = {};
    g.running = g.count;
    for (unsigned i = 0; i < g.count; ++i) {
        Thread& thread = g.threads[i];
        thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        thread.is_ready = true;
        thread.has_returned = false;
        Warp& warp = g.warps[i / kWarp];
        if (i % kWarp == 0) warp.running = 0, warp.barrier = {};
        warp.lanes = ++warp.running;
    }
    while (g.running > 0) {
        bool any = false;
        for (const unsigned number : order) {
            if (!g.threads[number].is_ready) continue;
            any = true;
            enter(g, number);
        }
        if (!any) refuse("the threads of a block wait for one another for ever");
    }
}

bool is_allowed(dim3 blocks, dim3 threads) {
    return blocks.x > 0 && blocks.x <= 0x7FFFFFFFu && blocks.y > 0 && blocks.y <= kMostInY && blocks.z > 0 &&
           blocks.z <= kMostInY && threads.x > 0 && threads.y > 0 && threads.z > 0 && threads.z <= 64 &&
           std::uint64_t{threads.x} * threads.y * threads.z <= kMostThreads;
}

}  // namespace

void set_order(Order order) {
    gpu().order = order;
}

cudaError_t run(dim3 blocks, dim3 threads, const std::function<void()>& kernel) {
    if (!is_allowed(blocks, threads)) return cudaErrorInvalidConfiguration;
    Gpu& g = gpu();
    const std::lock_guard lock(g.one_kernel);
    if (g.stacks == nullptr) make_threads(g);
    if (g.order.seed) g.random.seed(*g.order.seed);
    g.kernel = &kernel;
    g.count = threads.x * threads.y * threads.z;
    gridDim = blocks;
    blockDim = threads;
    const auto order = turns(g, g.count);
    for (const unsigned number : turns(g, blocks.x * blocks.y * blocks.z)) {
        blockIdx = {number % blocks.x, number / blocks.x % blocks.y, number / blocks.x / blocks.y};
        run_block(g, order);
    }
    return cudaSuccess;
}

bool wait_for_block(bool says) {
    Gpu& g = gpu();
    const unsigned parity = g.block.generation % 2;
    g.block.said[parity] |= says;
    wait(g, g.block, g.running, 0, g.count);
    return g.block.said[parity];
}

int lane() {
    return static_cast<int>(gpu().current % kWarp);
}

const Lanes& exchange(const std::uint64_t (&words)[kWords]) {
    Gpu& g = gpu();
    const unsigned first = g.current / kWarp * kWarp;
    Warp& warp = g.warps[g.current / kWarp];
    if (warp.running < warp.lanes) refuse("an exchange with a lane that has returned");
    Lanes& given = warp.given[warp.barrier.generation % 2];
    std::memcpy(given.of[g.current % kWarp], words, sizeof words);
    wait(g, warp.barrier, warp.running, first, first + warp.lanes);
    return given;
}

}  // namespace dp::cuda_emulator
