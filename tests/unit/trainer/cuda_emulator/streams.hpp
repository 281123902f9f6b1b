// SPDX-License-Identifier: Apache-2.0
//
// What goes on after the call that queued it: NCCL's collectives. All else that is queued on a stream runs before its
// call returns, once what it comes after has ended.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace dp::cuda_emulator {

// So many works of a stream.
struct Works {
    cudaStream_t stream;
    std::uint64_t count;
};
// What a work comes after.
using After = std::vector<Works>;

// Counts a work of the stream; end_work() says that it has ended. They end in the order in which they were begun.
After begin_work(cudaStream_t stream);
void end_work(cudaStream_t stream);

void wait_for(const After& works);
// For all that was queued there so far.
void wait_for(cudaStream_t stream);

}  // namespace dp::cuda_emulator
