/* SPDX-License-Identifier: Apache-2.0 */
#include <dp/dp.h>
#include <stdio.h>

int main(void) {
    dp_context* context;
    if (dp_open(&context) != DP_OK || dp_barrier(context, NULL, DP_TIMEOUT_DEFAULT) != DP_OK) {
        fprintf(stderr, "%s\n", dp_last_error());
        return 1;
    }
    printf("rank %u of %u\n", (unsigned)dp_get_world(context)->rank, (unsigned)dp_get_world(context)->size);
    dp_close(context);
    return 0;
}
