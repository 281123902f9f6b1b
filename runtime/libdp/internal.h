/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libdp offers only to its own parts (libdp-nccl, libdp-gloo): symbol version DP_PRIVATE_0.1.
 */
#pragma once

#include "dp/dp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets dp_last_error of the calling thread and returns the status. */
dp_status dp_internal_fail(dp_status status, const char* message);

/* This rank's communicator is ready: for the waterfall. */
void dp_internal_ready(dp_context* context);

#ifdef __cplusplus
}
#endif
