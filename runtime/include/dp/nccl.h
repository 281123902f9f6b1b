/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdp-nccl: an NCCL communicator from a group of ranks. A separate library, so that libdp does not need
 * CUDA. Threads and errors as in dp/dp.h. Since 0.1.
 */
#ifndef DP_NCCL_H
#define DP_NCCL_H

#include <nccl.h>

#include "dp/dp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator for the group (NULL: the whole world) on the calling thread's current CUDA device.
 * Every member calls. A member's rank in the communicator is its place in the group.
 *
 * Ownership: the caller owns *comm. Call dp_nccl_release before destroying it and before dp_close.
 *
 * Blocking: the communicator is non-blocking (ncclConfig_t.blocking = 0), so that no call can hang for ever.
 * A call on it may return ncclInProgress; poll with ncclCommGetAsyncError.
 *
 * Time: timeout_ms bounds the whole call. DP_TIMEOUT_DEFAULT is the step's --dp-timeout for the ranks to
 * arrive, then two minutes for NCCL to connect.
 *
 * Errors: before NCCL starts, the ranks compare their NCCL versions, devices, NCCL_SOCKET_IFNAME and worlds.
 * DP_ERROR_INVALID names the ranks that do not match (DP_PREFLIGHT=off skips this).
 *
 * Abort: when the step or its generation (dp_rejoin) is being ended, or this node's daemon is gone, a thread of libdp aborts what runs on
 * the communicator (NCCL 2.28.7 and later: ncclCommRevoke), so that no kernel waits for the dead for ever. If
 * NCCL does not manage that within 10 s, the process ends, unless it can rejoin: then --dp-grace decides. Such a
 * communicator may be released and aborted before or after dp_rejoin. */
dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms);

/* Takes the communicator back from libdp, which no longer touches it once this returns. Thread-safe. Call it
 * before dp_close and before destroying the communicator. Returns 1: destroy it as usual (ncclCommFinalize
 * and ncclCommDestroy). Returns 0: the step or its generation is being ended, and libdp has aborted what ran on it. Only
 * ncclCommAbort may follow, and the buffers of its last collectives hold garbage; do not save them. */
int dp_nccl_release(ncclComm_t comm);

/* Returns 1 until libdp begins to abort what runs on the communicator, then 0; also 0 once it has been released.
 * Thread-safe. Since 0.1.
 *
 * For a program that keeps its state across a death (dp_rejoin): ask after a collective has ended on the device. With 0
 * the abort may have ended it, and its buffers may hold garbage. With 1 it was not aborted on this rank; its result may
 * still have garbage in it, from a peer that was. So before such a program uses a result, it has all ranks confirm that they
 * saw 1, in one more all-reduce of a number that is new each time: only the right sum tells that all were there. */
int dp_nccl_intact(ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif
