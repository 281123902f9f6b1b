/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdp-nccl: an NCCL communicator from a group of ranks. A library of its own, so that libdp needs no CUDA.
 * Threads and errors as in dp/dp.h.
 */
#ifndef DP_NCCL_H
#define DP_NCCL_H

#include <nccl.h>

#include "dp/dp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator for the group (NULL: the whole world) on the calling thread's current CUDA device. Every
 * member calls. The rank inside the communicator is the member's place in the group. The caller owns *comm
 * (ncclCommDestroy). It is a non-blocking communicator (ncclConfig_t.blocking = 0), so that no call can hang
 * for good: a call on it may return ncclInProgress, to be polled with ncclCommGetAsyncError.
 * DP_TIMEOUT_DEFAULT: the step's --dp-timeout for the ranks to arrive, then two minutes for NCCL to connect
 * them. */
dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
