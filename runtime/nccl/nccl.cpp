// SPDX-License-Identifier: Apache-2.0
//
// libdp-nccl: compares what the ranks must have in common, exchanges the unique ids through libdp, then makes
// a communicator without ever blocking for good, and aborts it when a rank has died. Used by the trainer's
// CUDA module and by programs that link NCCL. See dp/nccl.h.
#include "dp/nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_guard.hpp"
#include "base/awake.hpp"
#include "libdp/internal.h"

static_assert(sizeof(ncclUniqueId) == DP_UNIQUE_ID_BYTES);

namespace {

// Missing if this library runs with an older NCCL than it was built with.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
#pragma weak ncclCommRevoke
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
#pragma weak ncclCommInitRankScalable
#endif

using dp::abort_or_exit;
using dp::AbortGuard;
using dp::give_up_on_nccl;
using dp::kAbortPatience;
using std::chrono::milliseconds;

// Once every rank has the id, all of them are there, and building the rings takes seconds even between many
// nodes. This bounds nodes whose NCCL networks do not reach each other, if no timeout was given.
constexpr milliseconds kInitTimeout = std::chrono::minutes(2);

// Several roots for a large communicator exist since NCCL 2.23. The same on all ranks, whose versions are compared, but with
// DP_PREFLIGHT=off.
bool is_scalable() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    return ncclCommInitRankScalable != nullptr;
#else
    return false;
#endif
}

ncclResult_t begin_communicator(ncclComm_t* comm, int size, std::vector<ncclUniqueId>& ids, int rank,
                                ncclConfig_t* config) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    if (ids.size() > 1)
        return ncclCommInitRankScalable(comm, size, rank, static_cast<int>(ids.size()), ids.data(), config);
#endif
    return ncclCommInitRankConfig(comm, size, ids.front(), rank, config);
}

// The PCI bus id of the calling thread's current device, "0000:17:00.0"; "" if there is no driver or no current
// device. From the driver: libdp-nccl does not link the CUDA runtime, because a program may have its own.
std::string current_device() {
    // From cuda.h: CUresult and CUdevice are ints, 0 is success.
    using ContextGetDevice = int (*)(int*);
    using DeviceGetBusId = int (*)(char*, int, int);
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) return "";
    const auto get_device = reinterpret_cast<ContextGetDevice>(dlsym(driver, "cuCtxGetDevice"));
    const auto get_bus_id = reinterpret_cast<DeviceGetBusId>(dlsym(driver, "cuDeviceGetPCIBusId"));
    std::array<char, 32> id{};
    int device = 0;
    const bool found = get_device != nullptr && get_bus_id != nullptr && get_device(&device) == 0 &&
                       get_bus_id(id.data(), static_cast<int>(id.size()), device) == 0;
    dlclose(driver);
    return found ? id.data() : "";
}

int make_id(void*, uint8_t id[DP_UNIQUE_ID_BYTES]) {
    ncclUniqueId made;
    if (ncclGetUniqueId(&made) != ncclSuccess) return 1;
    std::memcpy(id, &made, sizeof made);
    return 0;
}

dp_status backend(dp_status status, const std::string& what, ncclResult_t result, ncclComm_t comm) {
    std::string message = what + ": " + ncclGetErrorString(result);
    // NCCL's own message about the last failure; often the only useful one ("Duplicate GPU detected").
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

// Aborts what runs on the communicator, so that kernels that wait for a dead peer return; the caller still
// has to abort it. NCCL before 2.28.7 has no such function: aborting would free it under the caller's hands,
// so the process has to end instead.
void revoke(ncclComm_t comm) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
    if (ncclCommRevoke == nullptr) return;  // the library that was found is older than the header
    ncclResult_t state = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
    // It continues in the background; AbortGuard limits the time.
    while (state == ncclSuccess || state == ncclInProgress) {
        if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress) break;
        std::this_thread::sleep_for(milliseconds(1));
    }
#else
    static_cast<void>(comm);
#endif
}

// A communicator, from its creation on: aborted when the step, or its generation, ends.
class Watched {
 public:
    Watched(dp_context* context, uint32_t rank) : context_(context), rank_(rank) {}
    ~Watched() {
        if (watching_) dp_forget_event(context_, watch_);
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    dp_status begin() {
        const dp_status status = dp_on_event(context_, &Watched::on_event, this, &watch_);
        watching_ = status == DP_OK;
        return status;
    }

    // Why the step, or this generation, is being ended; "" if it is not. And what a call returns then.
    std::string ended() {
        std::lock_guard lock(mutex_);
        return ended_;
    }
    dp_status status() const { return status_; }

    // The communicator is ready: from now on libdp's thread aborts it.
    void stands(ncclComm_t comm) {
        std::lock_guard lock(mutex_);
        // Where the process can rejoin, --dp-grace says how long it may take: much may be queued before the collective.
        const auto end = [this] {
            if (status_ != DP_ERROR_PEER_LOST) give_up_on_nccl(rank_, kAbortPatience);
        };
        guard_ = std::make_unique<AbortGuard>([comm] { revoke(comm); }, end, kAbortPatience);
        if (!ended_.empty()) guard_->fire();
    }

    // Returns whether it was left alone.
    bool release() {
        dp_forget_event(context_, watch_);
        watching_ = false;
        return guard_->release();
    }

 private:
    dp_context* context_;
    uint32_t rank_;
    uint64_t watch_ = 0;
    bool watching_ = false;
    std::mutex mutex_;
    std::string ended_;
    std::atomic<dp_status> status_ = DP_ERROR_ABORTED;
    std::unique_ptr<AbortGuard> guard_;

    static void on_event(void* self, const dp_event* event) {
        auto& watched = *static_cast<Watched*>(self);
        // If ranks die and the others continue, these decide with whom.
        if (event->kind == DP_EVENT_DEATHS) return;
        std::lock_guard lock(watched.mutex_);
        watched.status_ = event->kind == DP_EVENT_PEER_LOST ? DP_ERROR_PEER_LOST : DP_ERROR_ABORTED;
        watched.ended_ = event->reason;
        if (watched.guard_) watched.guard_->fire();
    }
};

// The communicators that are ready.
std::mutex standing_mutex;
std::map<ncclComm_t, std::unique_ptr<Watched>>& standing() {
    // Never freed: a call-back may outlive static objects.
    static auto* all = new std::map<ncclComm_t, std::unique_ptr<Watched>>;
    return *all;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::string nccl_version() {
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) return "";
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

// Compares what would make NCCL hang, or complain less clearly.
dp_status preflight(dp_context* context, const dp_group* group, const dp_world& world, int64_t timeout_ms) {
    if (environment("DP_PREFLIGHT") == "off") return dp_barrier(context, group, timeout_ms);
    const std::string version = nccl_version();
    std::string device = current_device();
    // A user who gives each rank a host of its own wants to share devices (NCCL_HOSTID).
    if (!environment("NCCL_HOSTID").empty()) device.clear();
    if (!device.empty()) device = "node rank " + std::to_string(world.node_rank) + ", device " + device;
    const std::string interface = environment("NCCL_SOCKET_IFNAME");
    const std::string net = environment("NCCL_NET");
    const std::string without_ib = environment("NCCL_IB_DISABLE");
    const std::string world_size = std::to_string(world.size);
    auto or_none = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    auto or_unset = [](const std::string& value) { return value.empty() ? "(not set)" : value.c_str(); };
    const dp_fact facts[] = {
        {"NCCL's version", or_none(version), DP_SAME,
         "load the same NCCL (module, container, wheel) on all nodes"},
        {"device", or_none(device), DP_DISTINCT,
         "give each rank a device of its own: cudaSetDevice(LOCAL_RANK), and as many ranks a node as it has "
         "devices"},
        // With --dp-interface the plugin chose it; the network's interface may differ between nodes.
        {"NCCL_SOCKET_IFNAME", environment("DP_INTERFACE").empty() ? or_unset(interface) : nullptr, DP_SAME,
         "set it the same on all nodes, or let --dp-interface choose the network (DP_PREFLIGHT=off: do not "
         "compare)"},
        {"NCCL_NET", or_unset(net), DP_SAME,
         "set it the same on all nodes (DP_PREFLIGHT=off: do not compare)"},
        {"NCCL_IB_DISABLE", or_unset(without_ib), DP_SAME,
         "set it the same on all nodes (DP_PREFLIGHT=off: do not compare)"},
        {"the world's size", world_size.c_str(), DP_SAME, "start all ranks with one srun"},
    };
    return dp_agree(context, group, facts, std::size(facts), timeout_ms);
}

dp_status broken(ncclComm_t comm, uint32_t rank, dp_status status) {
    abort_or_exit(rank, [comm] { ncclCommAbort(comm); });
    return status;
}

}  // namespace

dp_status dp_nccl_communicator(dp_context* context, const dp_group* group, ncclComm_t* comm,
                               int64_t timeout_ms) {
    if (context == nullptr || comm == nullptr)
        return dp_internal_fail(DP_ERROR_INVALID, "dp_nccl_communicator: context and comm must not be NULL");
    *comm = nullptr;
    const milliseconds start = dp::steady_now();
    const dp_world& world = *dp_get_world(context);
    const int place = place_of(world, group);
    if (place < 0)
        return dp_internal_fail(
            DP_ERROR_INVALID, "dp_nccl_communicator: the calling rank is not among the members of the group");
    const int size =
        static_cast<int>(group == nullptr || group->members == nullptr ? world.size : group->count);

    // libdp names missing ranks here.
    if (dp_status s = preflight(context, group, world, timeout_ms); s != DP_OK) return s;
    const auto left = [&]() -> int64_t {
        if (timeout_ms < 0) return timeout_ms;
        return std::max<int64_t>(0, timeout_ms - (dp::steady_now() - start).count());
    };
    const size_t count = is_scalable() ? dp_unique_id_count(static_cast<size_t>(size)) : 1;
    std::vector<ncclUniqueId> ids(count);
    if (dp_status s = dp_unique_ids(context, group, count, make_id, nullptr,
                                    reinterpret_cast<uint8_t*>(ids.data()), left());
        s != DP_OK)
        return s;

    auto watched = std::make_unique<Watched>(context, world.rank);
    if (dp_status s = watched->begin(); s != DP_OK) return s;
    const std::string what = "NCCL could not connect rank " + std::to_string(place) + " of " +
                             std::to_string(size) + " at " + world.node_addr;
    const milliseconds patience = timeout_ms >= 0 ? milliseconds(left()) : kInitTimeout;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // else a peer that dies now would hold this rank for ever
    ncclComm_t made = nullptr;
    ncclResult_t result = begin_communicator(&made, size, ids, place, &config);
    if (result != ncclSuccess && result != ncclInProgress)
        return backend(DP_ERROR_BACKEND, what, result, made);
    const milliseconds began = dp::steady_now();
    dp::AwakeClock clock(began);
    while (true) {
        ncclResult_t state = ncclSuccess;
        result = ncclCommGetAsyncError(made, &state);
        if (result == ncclSuccess && state == ncclSuccess) break;
        if (const std::string why = watched->ended(); !why.empty())
            return broken(
                made, world.rank,
                dp_internal_fail(watched->status(), std::string(what).append(": ").append(why).c_str()));
        const bool late = clock.at(dp::steady_now()) > began + patience;
        if (result != ncclSuccess || state != ncclInProgress || late) {
            const auto reason = result != ncclSuccess ? result : state;
            return broken(made, world.rank,
                          backend(late ? DP_ERROR_TIMEOUT : DP_ERROR_BACKEND, what + (late ? " in time" : ""),
                                  reason, made));
        }
        std::this_thread::sleep_for(milliseconds(1));
    }
    dp_internal_ready(context);
    watched->stands(made);
    {
        std::lock_guard lock(standing_mutex);
        standing()[made] = std::move(watched);
    }
    *comm = made;
    return DP_OK;
}

int dp_nccl_release(ncclComm_t comm) {
    std::unique_ptr<Watched> watched;
    {
        std::lock_guard lock(standing_mutex);
        auto found = standing().find(comm);
        if (found == standing().end()) return 1;
        watched = std::move(found->second);
        standing().erase(found);
    }
    return watched->release() ? 1 : 0;
}

int dp_nccl_intact(ncclComm_t comm) {
    std::lock_guard lock(standing_mutex);
    const auto found = standing().find(comm);
    return found != standing().end() && found->second->ended().empty() ? 1 : 0;
}
