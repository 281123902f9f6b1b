// SPDX-License-Identifier: Apache-2.0
//
// libdp-nccl: the unique id through libdp, then a communicator that is built without ever blocking for good.
// The trainer's CUDA module calls it, and so may any program that links NCCL. See dp/nccl.h.
#include "dp/nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "libdp/internal.h"

static_assert(sizeof(ncclUniqueId) == DP_UNIQUE_ID_BYTES);

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Once every rank has the id, all of them are there: building the rings takes seconds even between many
// nodes. This bounds nodes whose NCCL networks do not reach each other, where nobody gave a time.
constexpr milliseconds kInitTimeout = std::chrono::minutes(2);

int make_id(void*, uint8_t id[DP_UNIQUE_ID_BYTES]) {
    ncclUniqueId made;
    if (ncclGetUniqueId(&made) != ncclSuccess) return 1;
    std::memcpy(id, &made, sizeof made);
    return 0;
}

dp_status backend(dp_status status, const std::string& what, ncclResult_t result, ncclComm_t comm) {
    std::string message = what + ": " + ncclGetErrorString(result);
    // NCCL's own words about the last failure; often the only useful ones ("Duplicate GPU detected").
    if (const char* last = ncclGetLastError(comm); last != nullptr && *last != '\0')
        message += ": " + std::string(last);
    message.erase(std::remove(message.begin(), message.end(), '\n'), message.end());
    return dp_internal_fail(status, (message + "; NCCL_DEBUG=INFO shows more").c_str());
}

// This rank's place in the group, or -1.
int place_of(const dp_world& world, const dp_group* group) {
    if (group == nullptr || group->members == nullptr) return static_cast<int>(world.rank);
    const auto* end = group->members + group->count;
    const auto* place = std::find(group->members, end, world.rank);
    return place == end ? -1 : static_cast<int>(place - group->members);
}

}  // namespace

dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms) {
    if (context == nullptr || comm == nullptr) {
        return dp_internal_fail(DP_ERROR_INVALID, "dp_nccl_communicator: context and comm must not be NULL");
    }
    *comm = nullptr;
    const auto start = Clock::now();
    const dp_world& world = *dp_get_world(context);
    const int place = place_of(world, group);
    if (place < 0) {
        return dp_internal_fail(
            DP_ERROR_INVALID, "dp_nccl_communicator: the calling rank is not among the members of the group");
    }
    const int size =
        static_cast<int>(group == nullptr || group->members == nullptr ? world.size : group->count);

    ncclUniqueId id;
    uint8_t bytes[DP_UNIQUE_ID_BYTES];
    // A rank that is missing is named here, by libdp.
    if (dp_status s = dp_unique_id(context, group, make_id, nullptr, bytes, timeout_ms); s != DP_OK) return s;
    std::memcpy(&id, bytes, sizeof id);

    const std::string what = "NCCL could not connect rank " + std::to_string(place) + " of " +
                             std::to_string(size) + " at " + world.node_addr;
    const auto deadline = timeout_ms >= 0 ? start + milliseconds(timeout_ms) : Clock::now() + kInitTimeout;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // else a peer that dies now would hold this rank for ever
    ncclComm_t made = nullptr;
    ncclResult_t result = ncclCommInitRankConfig(&made, size, id, place, &config);
    if (result != ncclSuccess && result != ncclInProgress)
        return backend(DP_ERROR_BACKEND, what, result, made);
    while (true) {
        ncclResult_t state = ncclSuccess;
        result = ncclCommGetAsyncError(made, &state);
        if (result == ncclSuccess && state == ncclSuccess) break;
        const bool late = Clock::now() > deadline;
        if (result != ncclSuccess || state != ncclInProgress || late) {
            const auto reason = result != ncclSuccess ? result : state;
            const dp_status status = backend(late ? DP_ERROR_TIMEOUT : DP_ERROR_BACKEND,
                                             what + (late ? " in time" : ""), reason, made);
            ncclCommAbort(made);  // its result would say nothing that the error does not
            return status;
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
    *comm = made;
    return DP_OK;
}
