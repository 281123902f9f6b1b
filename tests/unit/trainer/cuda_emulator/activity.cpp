// SPDX-License-Identifier: Apache-2.0
//
// CUPTI's activity records of the emulated GPU. As with NVIDIA's, a record is handed over in a buffer that was asked for, and only once
// it was flushed, a call has a number that what it queued has, too; and what is not enabled is not noted.
// DP_CUDA_EMULATOR_CUPTI=refuses: another profiler has it already; =silent: it notes nothing.
#include "activity.hpp"

#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "streams.hpp"

namespace dp::cuda_emulator {
namespace {

std::mutex mutex;
std::set<CUpti_ActivityKind> enabled;
std::vector<std::vector<std::uint8_t>> records;
std::uint32_t calls = 0;
CUpti_TimestampCallbackFunc clock_of_user = nullptr;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;

std::string mode() {
    const char* said = std::getenv("DP_CUDA_EMULATOR_CUPTI");
    return said == nullptr ? "" : said;
}

CUpti_ActivityKind kind_of(Did what) {
    switch (what) {
        case Did::copy:
            return CUPTI_ACTIVITY_KIND_MEMCPY;
        case Did::clear:
            return CUPTI_ACTIVITY_KIND_MEMSET;
        default:
            return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    }
}

template <typename Record>
void append(const Record& record) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&record);
    records.emplace_back(bytes, bytes + sizeof record);
}

template <typename Record>
void append(CUpti_ActivityKind kind, std::uint32_t call, std::uint64_t stream, std::uint64_t begin,
            std::uint64_t end) {
    Record record{};
    record.kind = kind;
    record.correlationId = call;
    record.streamId = static_cast<std::uint32_t>(stream);
    record.start = begin;
    record.end = end;
    append(record);
}

std::size_t size_of(CUpti_ActivityKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_RUNTIME:
            return sizeof(CUpti_ActivityAPI);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return sizeof(CUpti_ActivityMemcpy6);
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return sizeof(CUpti_ActivityMemset4);
        default:
            return sizeof(CUpti_ActivityKernel10);
    }
}

}  // namespace

Activity::Activity(Did what, cudaStream_t stream)
    : what_(what), stream_(reinterpret_cast<std::uint64_t>(stream) & 0xFFFFFFFF) {
    const std::lock_guard lock(mutex);
    is_noted_ = clock_of_user != nullptr && enabled.contains(kind_of(what)) && mode() != "silent";
    if (is_noted_) called_ = clock_of_user();
}

void Activity::begin() {
    if (is_noted_) begun_ = clock_of_user();
}

void Activity::end() {
    if (!is_noted_) return;
    const std::uint64_t now = clock_of_user();
    const std::lock_guard lock(mutex);
    const std::uint32_t call = ++calls;
    if (enabled.contains(CUPTI_ACTIVITY_KIND_RUNTIME)) {
        CUpti_ActivityAPI record{};
        record.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
        record.start = called_;
        record.end = called_;
        record.correlationId = call;
        append(record);
    }
    switch (what_) {
        case Did::kernel:
            return append<CUpti_ActivityKernel10>(kind_of(what_), call, stream_, begun_, now);
        case Did::copy:
            return append<CUpti_ActivityMemcpy6>(kind_of(what_), call, stream_, begun_, now);
        case Did::clear:
            return append<CUpti_ActivityMemset4>(kind_of(what_), call, stream_, begun_, now);
    }
}

Doing::Doing(Did what, cudaStream_t stream) : activity_(what, stream) {
    note_queued(stream);
    wait_for(stream);
    activity_.begin();
}

}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

extern "C" {

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                : "CUPTI_ERROR";
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    clock_of_user = clock;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
    request = requested;
    complete = completed;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (mode() == "refuses") return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    const std::lock_guard lock(mutex);
    enabled.insert(kind);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(mutex);
    enabled.erase(kind);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
    std::vector<std::vector<std::uint8_t>> all;
    {
        const std::lock_guard lock(mutex);
        all.swap(records);
    }
    for (std::size_t next = 0; next < all.size();) {
        std::uint8_t* buffer = nullptr;
        std::size_t room = 0, most = 0, filled = 0;
        request(&buffer, &room, &most);
        for (; next < all.size() && filled + all[next].size() <= room; ++next) {
            std::memcpy(buffer + filled, all[next].data(), all[next].size());
            filled += all[next].size();
        }
        complete(nullptr, 0, buffer, room, filled);
    }
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
    std::uint8_t* const next =
        *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
    if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
}
}
