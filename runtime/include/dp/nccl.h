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
 * (dp_nccl_release, then ncclCommDestroy). It is a non-blocking communicator (ncclConfig_t.blocking = 0), so
 * that no call can hang for good: a call on it may return ncclInProgress, to be polled with
 * ncclCommGetAsyncError. DP_TIMEOUT_DEFAULT: the step's --dp-timeout for the ranks to arrive, then two
 * minutes for NCCL to connect them. Before NCCL is started the ranks compare their versions of it, devices,
 * NCCL_SOCKET_IFNAME and worlds: DP_ERROR_INVALID names those that do not fit. When the step is being ended
 * because a rank has died, libdp ends what runs on the communicator from a thread of its own, so that no
 * kernel waits for the dead for ever; where NCCL does not manage that within 10 s, the process ends. Call
 * dp_nccl_release before destroying the communicator. */
dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms);

/* Takes the communicator back from libdp: it is not touched any more once this has returned. 1: destroy it
 * (ncclCommFinalize and ncclCommDestroy, or ncclCommAbort). 0: it has been aborted already and is gone (NCCL
 * before 2.28.7). Thread-safe. */
int dp_nccl_release(ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif
