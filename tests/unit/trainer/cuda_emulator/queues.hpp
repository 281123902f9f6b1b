// SPDX-License-Identifier: Apache-2.0
//
// Works of streams that are late, as on a GPU: with DP_CUDA_EMULATOR_STREAMS=late a kernel, a copy or what clears memory is queued
// by its call and runs only when somebody waits for it, after what it comes after on its stream and by events, but in no other order.
// With late:SEED some run earlier. Who forgets to wait then has wrong numbers, or the program ends (races.hpp). A copy from the
// host's memory ends the program where that has been changed before the copy runs; memory that a late copy writes on the host holds
// NaNs until then.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "activity.hpp"
#include "races.hpp"
#include "streams.hpp"

namespace dp::cuda_emulator {

struct GraphNode;

// DP_CUDA_EMULATOR_STREAMS says it at first.
bool are_late();
void set_late(bool late);

// Without late works, it runs before this returns, once what it comes after has ended; on a stream that is captured, when the graph is
// launched (graphs.hpp).
cudaError_t queue(Did what, cudaStream_t stream, Name name, std::vector<Range> ranges,
                  std::function<void()> work);
cudaError_t queue(cudaStream_t stream, const GraphNode& node);

// By whoever waits for them: runs one of these works or of those that they come after, and tells whether it did. If not, some are
// running elsewhere.
bool run_one_of(const After& works);

// Of pinned memory.
void note_pinned(void* place, std::size_t bytes);
void forget_pinned(const void* place);
bool is_pinned(const void* place);

}  // namespace dp::cuda_emulator
