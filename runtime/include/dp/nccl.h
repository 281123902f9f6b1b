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
 * NCCL_SOCKET_IFNAME and worlds: DP_ERROR_INVALID names those that do not fit (DP_PREFLIGHT=off leaves it
 * out). When the step is being ended, or this node's daemon is gone, libdp ends what runs on the communicator
 * from a thread of its own (with NCCL 2.28.7 and later: ncclCommRevoke), so that no kernel waits for the dead
 * for ever; where NCCL does not manage that within 10 s, the process ends. Call dp_nccl_release before
 * destroying the communicator and before dp_close. */
dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms);

/* Takes the communicator back from libdp: it is not touched any more once this has returned. Before dp_close,
 * and before it is destroyed. 1: destroy it as usual (ncclCommFinalize and ncclCommDestroy). 0: libdp has
 * ended what ran on it (the step is being ended): only ncclCommAbort may follow, and what its last
 * collectives left in their buffers is garbage, not to be saved. Thread-safe. */
int dp_nccl_release(ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif
