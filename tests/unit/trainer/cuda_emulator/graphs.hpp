// SPDX-License-Identifier: Apache-2.0
//
// CUDA graphs: what is queued on a stream that is captured is kept, with its arguments as they are, and runs each time the graph is
// launched. As CUDA does it (CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture"), a call that may not be made
// meanwhile fails, and so does the end of the capture. Of a thread that captures, nothing is allocated, freed or waited for, whatever
// mode was asked for. Copies from and to the host, and NCCL's collectives, which CUDA allows, are refused here, too.
//
// DP_CUDA_EMULATOR_GRAPHS=refused: nothing is captured. =upload: for graphs themselves there is no memory. =launch, =set: a graph cannot
// be launched, for lack of memory; no node of it can be changed.
//
// With DP_CUDA_EMULATOR_LAUNCHES=said the end of the process says how often the host queued something: a graph counts once.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "activity.hpp"
#include "races.hpp"

namespace dp::cuda_emulator {

struct GraphNode;
// Gives a node of a kernel other arguments.
using Rebinding = cudaError_t (*)(const cudaKernelNodeParams&, GraphNode&);

// What captures and launches are made of.
struct GraphNode {
    Did what;
    Name name;
    std::vector<Range> ranges;
    std::function<void()> work;
    Rebinding rebinding = nullptr;  // of what is no kernel of the trainer's: none
};

// Whether the stream is captured; then the node is kept, unless `result` says why not.
bool keep_if_captured(cudaStream_t stream, const GraphNode& node, cudaError_t& result);

// Of a call that may not be made on a stream that is captured: success where it is not.
cudaError_t refuse_on(cudaStream_t stream);
// Of a call that a thread may not make while it captures.
cudaError_t refuse_in_thread();

// Of events: the result of recording on a stream, and of a stream's wait. `is_done`: nothing else is to be done.
cudaError_t record_captured(cudaEvent_t event, cudaStream_t stream, bool& is_done);
cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event, bool& is_done);
// Of a host that asks for it, or waits.
cudaError_t refuse_captured(cudaEvent_t event);
void forget_captured(cudaEvent_t event);

// Whether anything ever was: then what is called may run after later calls.
bool has_captured();

// By whatever queues something for the host.
void count_launch();

}  // namespace dp::cuda_emulator
