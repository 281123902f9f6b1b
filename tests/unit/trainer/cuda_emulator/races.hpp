// SPDX-License-Identifier: Apache-2.0
//
// Whether works of different streams that use the same memory, one of them to write, have an order: by the calls that queued them
// alone, so that a missing wait is found however the works run. An order comes from a stream, from an event, from a communicator,
// whose collectives run one after another, and from the host, where it has waited. A work that has none ends the program, with both
// works' names. Of our own kernels it knows where their pointers begin, and no more (device_code.hpp). Where no works are late
// (queues.hpp), nothing is looked at.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

namespace dp::cuda_emulator {

// Memory that a work reads or writes.
struct Range {
    const void* first;
    std::size_t bytes;
    bool is_written;
};

// What a work is called: in words, or by its kernel.
struct Name {
    const char* words;
    const void* kernel = nullptr;
};

// The next work of the stream. `communicator`: whose, if it is a collective.
void order_work(cudaStream_t stream, Name name, std::vector<Range> ranges,
                const void* communicator = nullptr);

void order_record(cudaEvent_t event, cudaStream_t stream);
void order_wait(cudaStream_t stream, cudaEvent_t event);
void forget_order(cudaEvent_t event);

// What is queued from now on comes after what the host has waited for.
void order_host(cudaStream_t waited_for);
void order_host(cudaEvent_t waited_for);
void order_host_after_all();

}  // namespace dp::cuda_emulator
