// SPDX-License-Identifier: Apache-2.0
//
// A GPU's threads on the host: a kernel's blocks run one after the other, or a few at once (schedule.hpp), the
// threads of a block in turns, each on a stack of its own, until they wait for one another. device_code.hpp
// gives the kernels CUDA's names for this.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "schedule.hpp"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace dp::cuda_emulator {

// DP_CUDA_EMULATOR_ORDER says it at first (order_named()); without it, forward.
void set_order(Order order);

struct Kernel {
    void (*body)(const void* arguments);  // what each thread calls
    const void* arguments;
    const void* function;       // which kernel it is
    const void* beside_shared;  // a thread-local of its module, whose other ones are the shared variables
    bool is_watched;            // whether its accesses call the shadow (shadow.hpp)
    std::size_t launched = 0;   // bytes of shared memory that the launch asks for
};

// What CUDA's limits forbid is not to be run, and is answered as CUDA answers it.
// `launched`: bytes of shared memory that the launch asks for.
cudaError_t limits(dim3 blocks, dim3 threads, const void* function, std::size_t launched);
// One caller at a time.
void run(dim3 blocks, dim3 threads, const Kernel& kernel);

// What a launch of this kernel may ask for from now on: cudaFuncSetAttribute().
void allow_launched(const void* function, std::size_t bytes);

// For cudaGetLastError(), where it is a failure.
void note(cudaError_t result);
// Of a place in device memory: how far it is from the beginning of its allocation, which CUDA aligns to 256 bytes and the emulator to
// fewer; the address itself where it is in none.
std::uintptr_t place_in_allocation(const void* place);
// Of the memory that begins there, its last bytes, for one operation: until more is asked for, all before and behind them is nobody's,
// and they hold NaNs at first. What is written behind them ends the program then, at the latest; the shadow sees each access
// (shadow.hpp). Where works are late (queues.hpp), only what is beyond the memory is seen. Null where that is null.
void* hand_out(void* memory, std::size_t bytes);

// ---- by a thread of a running kernel; what the CUDA C++ Programming Guide leaves undefined ends the program

[[noreturn]] void refuse(const std::string& what);

// Of shared memory, what a block of any GPU has at most, and what this kernel's launch asks for.
constexpr std::size_t kMostShared = std::size_t{227} << 10;
std::size_t launched_bytes();

// A function that has shared variables is run; they are known by its mark (device_code.hpp).
void note_shared(const void* mark);

// Where in the kernels' source a thread waits for others: as a default argument, the place of the call.
struct Place {
    const char* file;
    int line;
    static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

// Waits for all threads of the block that have not returned, which are to come to the same place, and tells whether any of them
// says so.
bool wait_for_block(bool says, Place place);

// Where blocks are interleaved, another thread may have its turn here, of this block or of another one.
void yield();

constexpr int kWords = 6;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
struct Lanes {
    std::uint64_t of[32][kWords];
};
int lane();
// Waits until all lanes of the warp have given their words, at the same place, where the mask names all of them. Good until this
// thread's next but one exchange.
const Lanes& exchange(const std::uint64_t (&words)[kWords], unsigned mask, Place place);

// cp.async: what a thread has begun to copy. It takes the copies back in their order when it waits for them.
struct LaterCopy {
    void* to;
    const void* from;
    std::size_t bytes;
    bool exists;
};
void add_later_copy(const LaterCopy& copy);
std::optional<LaterCopy> take_later_copy();

}  // namespace dp::cuda_emulator
