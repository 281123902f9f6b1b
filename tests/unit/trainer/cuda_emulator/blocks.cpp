// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "poison.hpp"
#include "progress.hpp"
#include "shadow.hpp"
#include "shared_memory.hpp"
#include "spins.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace dp::cuda_emulator {

Progress progress;

namespace {

constexpr unsigned kMostThreads = 1024, kMostInY = 65535, kWarp = 32;
// Blocks that are there at once; of how many exchanges of a warp one ends its turn, on average; a block has 1, 2, 4 ... such turns
// before another one has its own.
constexpr unsigned kMostResident = 4, kExchangesOfTurn = 16, kLengthsOfTurn = 7;
constexpr std::size_t kStack = std::size_t{256} << 10;

// Where threads wait until all that have not returned are there.
struct Barrier {
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

// One of those that are there at once.
struct Block {
    explicit Block(unsigned which) : number(which) {}
    unsigned number;
    uint3 index{};
    std::vector<Thread> threads = std::vector<Thread>(kMostThreads);
    std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
    Barrier barrier;
    unsigned running = 0;  // threads that have not returned
    bool is_held = false;  // at an atomic or a fence, until no other block can go on
    // While another one goes on:
    Progress progress;
    KeptVariables shared;
};

Order from_environment() {
    const char* said = std::getenv("DP_CUDA_EMULATOR_ORDER");
    const auto order = order_named(said == nullptr ? "forward" : said);
    if (!order)
        refuse(std::string("DP_CUDA_EMULATOR_ORDER is forward, backward, a seed, greedy:SEED or "
                           "interleaved:SEED, not ") +
               said);
    return *order;
}

struct Gpu {
    std::mutex one_kernel;
    Order order = from_environment();
    std::mt19937_64 random;
    char* stacks = nullptr;
    std::array<std::unique_ptr<Block>, kMostResident> blocks;  // made when they are needed first
    Block* now = nullptr;
    unsigned count = 0;                  // threads of a block
    std::uint64_t begun = 0, beats = 0;  // blocks so far; for the watchdog
    bool has_lost_turn = false;
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
    Thread& thread = g.now->threads[progress.thread];
    if (thread.has_returned) thread.unused = end_of_unused();
    if (_setjmp(thread.place) == 0) _longjmp(g.scheduler, 1);
}

void wake(Gpu& g, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; ++i) g.now->threads[i].is_ready = !g.now->threads[i].has_returned;
}

// Where the last one of `running` arrives, those of first ... end - 1 may go on.
bool arrive(Gpu& g, Barrier& barrier, unsigned running, unsigned first, unsigned end) {
    if (barrier.arrived < running) return false;
    barrier.arrived = 0;
    barrier.said[++barrier.generation % 2] = false;
    ++g.beats;
    if (&barrier == &g.now->barrier) {
        ++progress.barriers;
    } else {
        ++progress.exchanges[first / kWarp];
    }
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
    const bool is_of_block = &barrier == &g.now->barrier;
    if (!arrive(g, barrier, running, first, end)) {
        g.now->threads[progress.thread].is_ready = false;
    } else if (g.order.interleaved && (is_of_block || g.random() % kExchangesOfTurn == 0)) {
        g.has_lost_turn = true;
    } else if (!g.order.greedy || !is_of_block) {
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
        Block& block = *g.now;
        Thread& thread = block.threads[progress.thread];
        thread.has_returned = true;
        thread.is_ready = false;
        ++g.beats;
        Warp& warp = block.warps[progress.thread / kWarp];
        --warp.running;
        if (warp.barrier.arrived > 0) refuse("a lane returns while others of its warp wait for it");
        if (--block.running > 0) arrive(g, block.barrier, block.running, 0, g.count);
    }
}

void enter(Gpu& g, unsigned number) {
    progress.thread = number;
    threadIdx = g.now->threads[number].index;
    if (_setjmp(g.scheduler) == 0) _longjmp(g.now->threads[number].place, 1);
}

void make_stacks(Gpu& g) {
    constexpr std::size_t kBytes = kStack * kMostThreads * kMostResident;
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("no memory for the threads' stacks");
    g.stacks = static_cast<char*>(memory);
    watch_stacks(g.stacks, kBytes);
}

// Once in a process: every thread of the block on its stack, waiting for its first kernel.
void make_block(Gpu& g, unsigned number) {
    g.blocks[number] = std::make_unique<Block>(number);
    g.now = g.blocks[number].get();
    for (progress.thread = 0; progress.thread < kMostThreads; ++progress.thread) {
        getcontext(&g.beginning);
        g.beginning.uc_stack.ss_sp = g.stacks + kStack * (number * kMostThreads + progress.thread);
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
        if (!g.now->threads[number].is_ready) continue;
        any = true;
        enter(g, number);
    }
    return any;
}

// One of the warps that can run, as far as it can, or until it loses its turn.
bool run_a_warp(Gpu& g, const std::vector<std::vector<unsigned>>& warps) {
    std::vector<const std::vector<unsigned>*> ready;
    for (const auto& lanes : warps)
        if (std::ranges::any_of(lanes, [&](unsigned number) { return g.now->threads[number].is_ready; }))
            ready.push_back(&lanes);
    if (ready.empty()) return false;
    const auto& lanes = *ready[g.random() % ready.size()];
    g.has_lost_turn = false;
    while (!g.has_lost_turn && run_each(g, lanes)) {
    }
    return true;
}

// The order of a kernel's threads, in the whole and by warp.
struct Turns {
    std::vector<unsigned> all;
    std::vector<std::vector<unsigned>> warps;
};

// A kernel's blocks, of which `most` are there at once.
class Grid {
 public:
    Grid(Gpu& g, const Turns& order, PoisonedMemory& memory) : g_(g), order_(order), memory_(memory) {}

    void run(std::vector<unsigned> numbers, unsigned most) {
        std::vector<Block*> free, resident;
        for (unsigned i = 0; i < most; ++i) {
            if (g_.blocks[i] == nullptr) make_block(g_, i);
            free.push_back(g_.blocks[i].get());
            for (unsigned j = 0; j < g_.count; ++j) poison_stack(g_.blocks[i]->threads[j].unused);
        }
        g_.now = nullptr;
        for (auto next = numbers.begin(); next != numbers.end() || !resident.empty();) {
            for (; !free.empty() && next != numbers.end(); free.pop_back(), ++next) {
                begin(*free.back(), *next);
                resident.push_back(free.back());
            }
            const auto one = one_of(resident);
            go_on_with(**one);
            run_for(most == 1 ? ~std::uint64_t{0} : std::uint64_t{1} << length_of_turn());
            if (g_.now->running > 0) continue;
            free.push_back(*one);
            resident.erase(one);
            g_.now = nullptr;
        }
    }

 private:
    Gpu& g_;
    const Turns& order_;
    PoisonedMemory& memory_;

    void leave() {
        if (g_.now == nullptr) return;
        g_.now->progress = progress;
        memory_.keep(g_.now->shared);
        g_.now = nullptr;
    }

    void go_on_with(Block& block) {
        if (g_.now == &block) return;
        leave();
        g_.now = &block;
        progress = block.progress;
        blockIdx = block.index;
        memory_.bring(block.shared);
        if (g_.kernel->is_watched) watch_block(block.number);
    }

    void begin(Block& block, unsigned number) {
        leave();
        for (auto& variable : block.shared) variable.clear();
        block.index = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
        block.progress = progress;
        block.progress.block = block.progress.barriers = ++g_.begun * kTimesOfBlock;
        block.barrier = {};
        block.running = g_.count;
        block.is_held = false;
        for (unsigned i = 0; i < g_.count; ++i) {
            Thread& thread = block.threads[i];
            thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
            thread.is_ready = true;
            thread.has_returned = false;
            Warp& warp = block.warps[i / kWarp];
            thread.copies.clear();
            thread.taken = 0;
            if (i % kWarp == 0) warp.running = 0, warp.barrier = {};
            warp.lanes = ++warp.running;
        }
    }

    // Blocks that are held meet: all of them go on when there are no others.
    std::vector<Block*>::iterator one_of(std::vector<Block*>& resident) {
        auto end = std::partition(resident.begin(), resident.end(),
                                  [](const Block* block) { return !block->is_held; });
        if (end == resident.begin()) {
            for (Block* const block : resident) block->is_held = false;
            end = resident.end();
        }
        const auto count = end - resident.begin();
        if (count == 1) return resident.begin();
        return resident.begin() + static_cast<std::ptrdiff_t>(g_.random() % static_cast<unsigned>(count));
    }

    // Half of them short, so that blocks meet at each place; others so long that one waits while another one ends.
    std::uint64_t length_of_turn() { return g_.random() % 2 == 0 ? 0 : g_.random() % kLengthsOfTurn; }

    // Until the block ends, or so many of its warps' turns.
    void run_for(std::uint64_t turns) {
        for (; turns > 0 && g_.now->running > 0 && !g_.now->is_held; --turns)
            if (!(g_.order.greedy ? run_a_warp(g_, order_.warps) : run_each(g_, order_.all)))
                refuse("the threads of a block wait for one another for ever");
    }
};

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
    if (g.stacks == nullptr) make_stacks(g);
    if (g.order.seed) g.random.seed(*g.order.seed);
    g.kernel = &kernel;
    g.count = threads.x * threads.y * threads.z;
    gridDim = blocks;
    blockDim = threads;
    Turns order{turns(g.order, g.random, g.count), {}};
    order.warps.resize((g.count + kWarp - 1) / kWarp);
    for (const unsigned number : order.all) order.warps[number / kWarp].push_back(number);
    const SharedMemory& shared = shared_memory(kernel.beside_shared);
    PoisonedMemory memory(shared);
    progress.launch = (g.begun + 1) * kTimesOfBlock;
    if (kernel.is_watched) watch_kernel(shared);
    const auto numbers = turns(g.order, g.random, blocks.x * blocks.y * blocks.z);
    unsigned most = 1;
    if (g.order.interleaved && numbers.size() > 1)
        most = std::min(2 + static_cast<unsigned>(g.random() % (kMostResident - 1)),
                        static_cast<unsigned>(numbers.size()));
    const Watchdog watchdog(g.beats);
    Grid(g, order, memory).run(numbers, most);
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
    Block& block = *g.now;
    const unsigned parity = block.barrier.generation % 2;
    block.barrier.said[parity] |= says;
    wait(g, block.barrier, block.running, 0, g.count, place);
    return block.barrier.said[parity];
}

void yield() {
    Gpu& g = gpu();
    if (!g.order.interleaved) return;
    g.has_lost_turn = true;
    if (g.random() % 2 == 0) g.now->is_held = true;
    switch_away(g);
}

int lane() {
    return static_cast<int>(progress.thread % kWarp);
}

const Lanes& exchange(const std::uint64_t (&words)[kWords], unsigned mask, Place place) {
    Gpu& g = gpu();
    const unsigned first = progress.thread / kWarp * kWarp;
    Warp& warp = g.now->warps[progress.thread / kWarp];
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
    gpu().now->threads[progress.thread].copies.push_back(copy);
}

std::optional<LaterCopy> take_later_copy() {
    Thread& thread = gpu().now->threads[progress.thread];
    if (thread.taken < thread.copies.size()) return thread.copies[thread.taken++];
    thread.copies.clear();
    thread.taken = 0;
    return std::nullopt;
}

}  // namespace dp::cuda_emulator
