// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "poison.hpp"
#include "progress.hpp"
#include "shadow.hpp"
#include "shared_memory.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace dp::cuda_emulator {

Progress progress;

namespace {

constexpr unsigned kMostThreads = 1024, kMostInY = 65535, kWarp = 32;
constexpr std::size_t kStack = std::size_t{256} << 10;

// Where threads wait until all that have not returned are there.
struct Barrier {
    std::uint32_t* opened = nullptr;  // counts for the shadow
    unsigned arrived = 0, generation = 0;
    Place place{};      // of those that have arrived
    bool said[2] = {};  // by the generation's parity: one is read while the next fills
};

struct Thread {
    jmp_buf place;  // where it goes on
    uint3 index{};
    bool is_ready = false, has_returned = true;
    char* unused = nullptr;         // the end of what nothing uses of its stack between kernels
    std::vector<LaterCopy> copies;  // of which so many are taken
    std::size_t taken = 0;
};

struct Warp {
    Barrier barrier;
    unsigned running = 0, lanes = 0;
    Lanes given[2];  // by the barrier's parity
};

Order from_environment() {
    const char* said = std::getenv("DP_CUDA_EMULATOR_ORDER");
    const auto order = order_named(said == nullptr ? "forward" : said);
    if (!order)
        refuse(std::string("DP_CUDA_EMULATOR_ORDER is forward, backward, a seed or greedy:SEED, not ") +
               said);
    return *order;
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
    jmp_buf scheduler;
    ucontext_t beginning;
    const Kernel* kernel = nullptr;
    std::map<const void*, std::size_t> allowed;  // bytes of shared memory by kernel
};

Gpu& gpu() {
    static Gpu the_gpu;
    return the_gpu;
}

// Below it, its caller's stack is not used.
__attribute__((noinline)) char* end_of_unused() {
    return static_cast<char*>(__builtin_frame_address(0));
}

// Back to the scheduler; here the thread goes on.
void switch_away(Gpu& g) {
    Thread& thread = g.threads[progress.thread];
    if (thread.has_returned) thread.unused = end_of_unused();
    if (_setjmp(thread.place) == 0) _longjmp(g.scheduler, 1);
}

void wake(Gpu& g, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; ++i) g.threads[i].is_ready = !g.threads[i].has_returned;
}

// Where the last one of `running` arrives, those of first ... end - 1 may go on.
bool arrive(Gpu& g, Barrier& barrier, unsigned running, unsigned first, unsigned end) {
    if (barrier.arrived < running) return false;
    barrier.arrived = 0;
    barrier.said[++barrier.generation % 2] = false;
    ++*barrier.opened;
    wake(g, first, end);
    return true;
}

bool is_same(Place one, Place other) {
    return one.line == other.line && (one.file == other.file || std::strcmp(one.file, other.file) == 0);
}
std::string text(Place place) {
    return std::string(place.file) + ":" + std::to_string(place.line);
}

void wait(Gpu& g, Barrier& barrier, unsigned running, unsigned first, unsigned end, Place place) {
    if (barrier.arrived++ == 0) {
        barrier.place = place;
    } else if (!is_same(barrier.place, place)) {
        refuse("threads that wait for one another do so at different places: " + text(barrier.place) +
               " and " + text(place));
    }
    if (!arrive(g, barrier, running, first, end)) {
        g.threads[progress.thread].is_ready = false;
    } else if (!g.order.greedy || &barrier != &g.block) {
        return;
    }  // else any of the block's warps may be the next
    switch_away(g);
}

// A thread's whole life: it runs kernel after kernel on its stack.
void live() {
    Gpu& g = gpu();
    for (;;) {
        switch_away(g);
        g.kernel->body(g.kernel->arguments);
        Thread& thread = g.threads[progress.thread];
        thread.has_returned = true;
        thread.is_ready = false;
        Warp& warp = g.warps[progress.thread / kWarp];
        --warp.running;
        if (warp.barrier.arrived > 0) refuse("a lane returns while others of its warp wait for it");
        if (--g.running > 0) arrive(g, g.block, g.running, 0, g.count);
    }
}

void enter(Gpu& g, unsigned number) {
    progress.thread = number;
    threadIdx = g.threads[number].index;
    if (_setjmp(g.scheduler) == 0) _longjmp(g.threads[number].place, 1);
}

// Once in a process: every thread on its stack, waiting for its first kernel.
void make_threads(Gpu& g) {
    void* memory = mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("no memory for the threads' stacks");
    g.stacks = static_cast<char*>(memory);
    watch_stacks(g.stacks, kStack * kMostThreads);
    for (progress.thread = 0; progress.thread < kMostThreads; ++progress.thread) {
        getcontext(&g.beginning);
        g.beginning.uc_stack.ss_sp = g.stacks + kStack * progress.thread;
        g.beginning.uc_stack.ss_size = kStack;
        makecontext(&g.beginning, live, 0);
        if (_setjmp(g.scheduler) == 0) setcontext(&g.beginning);
    }
}

// All threads that can, in this order; false if none can.
template <typename Numbers>
bool run_each(Gpu& g, const Numbers& order) {
    bool any = false;
    for (const unsigned number : order) {
        if (!g.threads[number].is_ready) continue;
        any = true;
        enter(g, number);
    }
    return any;
}

// One of the warps that can run, as far as it can.
bool run_a_warp(Gpu& g, const std::vector<std::vector<unsigned>>& warps) {
    std::vector<const std::vector<unsigned>*> ready;
    for (const auto& lanes : warps)
        if (std::ranges::any_of(lanes, [&](unsigned number) { return g.threads[number].is_ready; }))
            ready.push_back(&lanes);
    if (ready.empty()) return false;
    const auto& lanes = *ready[g.random() % ready.size()];
    while (run_each(g, lanes)) {
    }
    return true;
}

void run_block(Gpu& g, const std::vector<unsigned>& order, const std::vector<std::vector<unsigned>>& warps) {
    progress.block = ++progress.barriers;
    g.block = {};
    g.block.opened = &progress.barriers;
    g.running = g.count;
    for (unsigned i = 0; i < g.count; ++i) {
        Thread& thread = g.threads[i];
        thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        thread.is_ready = true;
        thread.has_returned = false;
        Warp& warp = g.warps[i / kWarp];
        thread.copies.clear();
        thread.taken = 0;
        if (i % kWarp == 0)
            warp.running = 0, warp.barrier = {}, warp.barrier.opened = &progress.exchanges[i / kWarp];
        warp.lanes = ++warp.running;
    }
    while (g.running > 0)
        if (!(g.order.greedy ? run_a_warp(g, warps) : run_each(g, order)))
            refuse("the threads of a block wait for one another for ever");
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

void refuse(const std::string& what) {
    std::fprintf(stderr, "emulated GPU: %s (block %u %u %u, thread %u %u %u)\n", what.c_str(), blockIdx.x,
                 blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    std::abort();
}

cudaError_t limits(dim3 blocks, dim3 threads, const void* function, std::size_t launched) {
    if (!is_allowed(blocks, threads)) return cudaErrorInvalidConfiguration;
    Gpu& g = gpu();
    const std::lock_guard lock(g.one_kernel);
    constexpr std::size_t kUnasked =
        (48 << 10) - 1024;  // 48 KiB with the kernel's own, of which nothing here has more
    const auto allowed = g.allowed.find(function);
    return launched > (allowed == g.allowed.end() ? kUnasked : allowed->second) ? cudaErrorInvalidValue
                                                                                : cudaSuccess;
}

void run(dim3 blocks, dim3 threads, const Kernel& kernel) {
    Gpu& g = gpu();
    const std::lock_guard lock(g.one_kernel);
    if (g.stacks == nullptr) make_threads(g);
    if (g.order.seed) g.random.seed(*g.order.seed);
    g.kernel = &kernel;
    g.count = threads.x * threads.y * threads.z;
    gridDim = blocks;
    blockDim = threads;
    const auto order = turns(g.order, g.random, g.count);
    std::vector<std::vector<unsigned>> warps((g.count + kWarp - 1) / kWarp);
    for (const unsigned number : order) warps[number / kWarp].push_back(number);
    const SharedMemory& shared = shared_memory(kernel.beside_shared);
    PoisonedMemory poisoned(shared, kernel.function);
    for (unsigned i = 0; i < g.count; ++i) poison_stack(g.threads[i].unused);
    progress.launch = ++progress.barriers;
    if (kernel.is_watched) watch_kernel(shared);
    for (const unsigned number : turns(g.order, g.random, blocks.x * blocks.y * blocks.z)) {
        blockIdx = {number % blocks.x, number / blocks.x % blocks.y, number / blocks.x / blocks.y};
        poisoned.before_block();
        run_block(g, order, warps);
        poisoned.after_block();
    }
}

void allow_launched(const void* function, std::size_t bytes) {
    const std::lock_guard lock(gpu().one_kernel);
    gpu().allowed[function] = bytes;
}

std::size_t launched_bytes() {
    return gpu().kernel->launched;
}

bool wait_for_block(bool says, Place place) {
    Gpu& g = gpu();
    const unsigned parity = g.block.generation % 2;
    g.block.said[parity] |= says;
    wait(g, g.block, g.running, 0, g.count, place);
    return g.block.said[parity];
}

int lane() {
    return static_cast<int>(progress.thread % kWarp);
}

const Lanes& exchange(const std::uint64_t (&words)[kWords], unsigned mask, Place place) {
    Gpu& g = gpu();
    const unsigned first = progress.thread / kWarp * kWarp;
    Warp& warp = g.warps[progress.thread / kWarp];
    if (warp.running < warp.lanes) refuse("an exchange with a lane that has returned, at " + text(place));
    if (const unsigned all = kAllLanes >> (kWarp - warp.lanes); (mask & all) != all)
        refuse(
            "the mask of an exchange leaves out lanes of the warp, which the emulated GPU has only as a "
            "whole, at " +
            text(place));
    Lanes& given = warp.given[warp.barrier.generation % 2];
    std::memcpy(given.of[progress.thread % kWarp], words, sizeof words);
    wait(g, warp.barrier, warp.running, first, first + warp.lanes, place);
    return given;
}

void add_later_copy(const LaterCopy& copy) {
    gpu().threads[progress.thread].copies.push_back(copy);
}

std::optional<LaterCopy> take_later_copy() {
    Thread& thread = gpu().threads[progress.thread];
    if (thread.taken < thread.copies.size()) return thread.copies[thread.taken++];
    thread.copies.clear();
    thread.taken = 0;
    return std::nullopt;
}

}  // namespace dp::cuda_emulator
