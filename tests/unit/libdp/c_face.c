/* SPDX-License-Identifier: Apache-2.0 */
/* dp.h as a C compiler sees it. */
#include <string.h>

#include "dp/dp.h"

static int make(void* user, uint8_t id[DP_UNIQUE_ID_BYTES]) {
    memset(id, *(int*)user, DP_UNIQUE_ID_BYTES);
    return 0;
}

int c_face_smoke(void) {
    dp_context* context = NULL;
    if (dp_open(&context) != DP_OK) return 20;
    const dp_world* world = dp_get_world(context);
    uint8_t id[DP_UNIQUE_ID_BYTES];
    int fill = 7;
    if (dp_unique_id(context, NULL, make, &fill, id, DP_TIMEOUT_DEFAULT) != DP_OK || id[127] != 7) return 21;
    int64_t count = 0;
    if (dp_add(context, "n", 1, &count, 1000) != DP_OK || count < 1 || count > (int64_t)world->size)
        return 22;
    const uint32_t all[2] = {0, 1};
    const dp_group pair = {"pair", all, 2};
    if (dp_barrier(context, &pair, DP_TIMEOUT_DEFAULT) != DP_OK) return 23;
    char value[16];
    size_t size = 0;
    if (dp_compare_set(context, "c", "", 0, "v", 1, value, sizeof value, &size, 1000) != DP_OK || size != 1)
        return 24;
    const char* keys[2] = {"n", "c"};
    if (dp_wait(context, keys, 2, 1000) != DP_OK) return 25;
    if (dp_get(context, "none", value, sizeof value, &size, 0) != DP_ERROR_NOT_FOUND) return 26;
    if (strlen(dp_last_error()) == 0 || strcmp(dp_status_name(DP_ERROR_NOT_FOUND), "not found") != 0)
        return 27;
    if (dp_phase(context, DP_PHASE_COMPUTE) != DP_OK || dp_phase(context, DP_PHASE_IDLE) != DP_OK) return 28;
    if (dp_phase(context, (dp_phase_kind)5) != DP_ERROR_INVALID) return 29;
    if (dp_log_scalar(context, "loss", 0.5) != DP_OK || dp_log_scalar(context, NULL, 1) != DP_ERROR_INVALID)
        return 32;
    dp_enable_rejoin(context);
    dp_changes changes;
    if (dp_rejoin(context, &changes, 50) != DP_ERROR_TIMEOUT) return 30;
    if (dp_barrier(context, NULL, DP_TIMEOUT_DEFAULT) != DP_OK) return 31;
    dp_close(context);
    return 0;
}
