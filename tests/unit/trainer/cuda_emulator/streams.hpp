// SPDX-License-Identifier: Apache-2.0
//
// What goes on after the call that queued it: NCCL's collectives, and copies from the host, which read its memory only when the next
// work is queued or waited for. All else that is queued on a stream runs before its call returns, once what it comes after has
// ended; or, if it is late (queues.hpp), when it is waited for.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
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

// Notes that something is queued on the stream, of whichever kind.
void note_queued(cudaStream_t stream);

bool have_ended(const After& works);
void wait_for(const After& works);
// For all that was queued there so far.
void wait_for(cudaStream_t stream);
// For all that was queued anywhere, if works are late.
void wait_for_late();

// A copy from the host's memory, the last work of its stream.
void copy_later(void* to, const void* from, std::size_t bytes);
// Those that are late.
void do_copies();

}  // namespace dp::cuda_emulator
