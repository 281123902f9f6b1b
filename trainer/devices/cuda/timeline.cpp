// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/timeline.hpp"

#include <cupti.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "trainer/devices/cuda_libraries.hpp"

namespace dp::trainer {
namespace {

#define DP_TEXT_OF(x) #x
#define DP_TEXT(x) DP_TEXT_OF(x)
constexpr const char* kCupti = "libcupti.so." DP_TEXT(DP_TRAINER_CUDA_MAJOR);
// What the GPU did, and the calls of CUDA that queued it: of its two interfaces, because libraries use either.
constexpr std::array kKinds{CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
                            CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                            CUPTI_ACTIVITY_KIND_MEMSET};
// NVIDIA's tools set one of these to the library that hears of ranges.
constexpr std::array kTools{"NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH"};

std::uint64_t steady_clock_now() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

struct Cupti {
    decltype(&cuptiActivityRegisterTimestampCallback) set_clock;
    decltype(&cuptiActivityRegisterCallbacks) set_buffers;
    decltype(&cuptiActivityEnable) enable;
    decltype(&cuptiActivityDisable) disable;
    decltype(&cuptiActivitySetAttribute) set;
    decltype(&cuptiActivityFlushAll) flush;
    decltype(&cuptiActivityGetNextRecord) next;
    decltype(&cuptiActivityGetNumDroppedRecords) dropped;
    decltype(&cuptiGetResultString) text;

    static Result<Cupti> open() {
        void* const library = open_cuda_library(kCupti);
        if (library == nullptr)
            return fail(
                Fault::usage,
                std::string("the times of a GPU's operations need ") + kCupti +
                    ", CUDA's profiling library, which was not found; install it (cuda-cupti, or pip's "
                    "nvidia-cuda-cupti), add its folder to LD_LIBRARY_PATH, or leave out --profile and "
                    "--per-operation");
        Cupti found{};
        bool is_whole = true;
        const auto look_up = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            is_whole = is_whole && function != nullptr;
        };
        look_up(found.set_clock, "cuptiActivityRegisterTimestampCallback");
        look_up(found.set_buffers, "cuptiActivityRegisterCallbacks");
        look_up(found.enable, "cuptiActivityEnable");
        look_up(found.disable, "cuptiActivityDisable");
        look_up(found.set, "cuptiActivitySetAttribute");
        look_up(found.flush, "cuptiActivityFlushAll");
        look_up(found.next, "cuptiActivityGetNextRecord");
        look_up(found.dropped, "cuptiActivityGetNumDroppedRecords");
        look_up(found.text, "cuptiGetResultString");
        if (!is_whole)
            return fail(
                Fault::usage,
                std::string(kCupti) +
                    " is too old to time a GPU's operations; install that of the latest CUDA " DP_TEXT(
                        DP_TRAINER_CUDA_MAJOR) ".x, or leave out --profile and --per-operation");
        return found;
    }

    Result<void> done(CUptiResult result, const char* what) const {
        if (result == CUPTI_SUCCESS) return {};
        const char* words = nullptr;
        const bool has_words = text(result, &words) == CUPTI_SUCCESS && words != nullptr;
        return fail(
            Fault::usage,
            std::string(what) + " by CUPTI failed: " + (has_words ? words : "an unknown error") +
                "; if another profiler is attached to this process, leave out --profile and --per-operation");
    }
};

// CUPTI hands records over in a thread of its own, with nothing that says to whom: there is one receiver in a process.
class Receiver {
 public:
    static Receiver& instance() {
        static auto* const receiver = new Receiver;  // CUPTI may call at the process's end
        return *receiver;
    }

    void set(const Cupti& cupti) {
        const std::lock_guard lock(mutex_);
        cupti_ = cupti;
        forget();
    }

    void take(CUcontext context, std::uint8_t* buffer, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        CUpti_Activity* record = nullptr;
        while (cupti_.next(buffer, bytes, &record) == CUPTI_SUCCESS) note(*record);
        std::size_t dropped = 0;
        if (cupti_.dropped(context, 0, &dropped) == CUPTI_SUCCESS) dropped_ += dropped;
    }

    // Those whose call is known. Forgets all.
    std::vector<DeviceWork> works() {
        const std::lock_guard lock(mutex_);
        std::vector<DeviceWork> all;
        for (auto& [call, work] : works_)
            if (const auto found = calls_.find(call); found != calls_.end()) {
                work.queued = found->second;
                all.push_back(work);
            }
        forget();
        return all;
    }

    // Records that were lost since it was asked last.
    std::size_t dropped() {
        const std::lock_guard lock(mutex_);
        return std::exchange(dropped_, 0);
    }

 private:
    std::mutex mutex_;
    Cupti cupti_{};
    // By the number that CUPTI gives each call of CUDA: when it began, and what came of it. NCCL queues its kernels in threads of its
    // own, so the thread of a call says nothing.
    std::unordered_map<std::uint32_t, std::int64_t> calls_;
    std::vector<std::pair<std::uint32_t, DeviceWork>> works_;
    std::size_t dropped_ = 0;

    void forget() {
        calls_.clear();
        works_.clear();
    }

    void note(const CUpti_Activity& record) {
        switch (record.kind) {
            case CUPTI_ACTIVITY_KIND_RUNTIME:
            case CUPTI_ACTIVITY_KIND_DRIVER: {
                const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(record);
                calls_[call.correlationId] = static_cast<std::int64_t>(call.start);
                return;
            }
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
                return add(reinterpret_cast<const CUpti_ActivityKernel9&>(record));
            case CUPTI_ACTIVITY_KIND_MEMCPY:
                return add(reinterpret_cast<const CUpti_ActivityMemcpy5&>(record));
            case CUPTI_ACTIVITY_KIND_MEMSET:
                return add(reinterpret_cast<const CUpti_ActivityMemset4&>(record));
            default:
                return;
        }
    }
    void add(const auto& record) {
        if (record.start != 0 && record.end >= record.start)  // else CUPTI could not tell
            works_.emplace_back(record.correlationId, DeviceWork{0, static_cast<std::int64_t>(record.start),
                                                                 static_cast<std::int64_t>(record.end)});
    }
};

// CUPTI asks for room, and gives it back filled.
constexpr std::size_t kRoom = std::size_t{1} << 20;
void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kRoom));
    *bytes = *buffer == nullptr ? 0 : kRoom;
    *most_records = 0;  // as many as it holds
}
void CUPTIAPI take_buffer(CUcontext context, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
    if (valid > 0) Receiver::instance().take(context, buffer, valid);
    std::free(buffer);
}

class NvtxRanges : public DeviceTimeline {
 public:
    void start() override {}
    void stop() override {}
    void wait() override {}
    void begin(std::string_view name, const std::string& layer) override {
        text_ = name;
        if (!layer.empty()) text_.append(" ").append(layer);
        nvtxRangePushA(text_.c_str());
    }
    void end() override { nvtxRangePop(); }
    Result<std::vector<DeviceWork>> works() override { return {}; }

 private:
    std::string text_;
};

class CuptiTimeline final : public NvtxRanges {
 public:
    CuptiTimeline(const Cupti& cupti, cudaStream_t stream) : cupti_(cupti), stream_(stream) {}
    ~CuptiTimeline() override { disable(); }

    Result<void> open() {
        Receiver::instance().set(cupti_);
        // Before anything is enabled, as its manual asks.
        DP_TRY(cupti_.done(cupti_.set_clock(steady_clock_now), "setting the clock of the profile"));
        // Not a buffer for each thread: NCCL has a thread for each call.
        std::uint8_t by_thread = 0;
        std::size_t bytes = sizeof by_thread;
        DP_TRY(cupti_.done(cupti_.set(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &bytes, &by_thread),
                           "setting up the profile's records"));
        DP_TRY(cupti_.done(cupti_.set_buffers(give_buffer, take_buffer), "asking for the profile's records"));
        // Now rather than in a step: what cannot work is said before the training.
        start();
        disable();
        return problem_;
    }

    void start() override {
        if (std::exchange(is_on_, true)) return;
        problem_ = {};
        for (const CUpti_ActivityKind kind : kKinds) keep(cupti_.enable(kind), "noting what the GPU does");
    }
    void stop() override {
        if (!is_on_) return;
        disable();
        cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        Receiver::instance().works();
        Receiver::instance().dropped();
    }
    void wait() override { cudaStreamSynchronize(stream_); }  // the device notices what is wrong

    Result<std::vector<DeviceWork>> works() override {
        if (const cudaError_t waited = cudaStreamSynchronize(stream_); waited != cudaSuccess)
            return fail(Fault::device, std::string("waiting for the GPU: ") + cudaGetErrorString(waited));
        // All that was noted has ended: none of it is cut off.
        keep(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "fetching what the GPU did");
        disable();
        auto works = Receiver::instance().works();
        const std::size_t dropped = Receiver::instance().dropped();
        DP_TRY(problem_);
        if (dropped > 0)
            return fail(Fault::device, "CUPTI has lost " + std::to_string(dropped) +
                                           " records of the profile; profile fewer steps (--profile-steps)");
        return works;
    }

 private:
    const Cupti cupti_;
    const cudaStream_t stream_;
    bool is_on_ = false;
    Result<void> problem_;  // the first

    void disable() {
        if (!std::exchange(is_on_, false)) return;
        for (const CUpti_ActivityKind kind : kKinds) keep(cupti_.disable(kind), "ending the profile");
    }
    void keep(CUptiResult result, const char* what) {
        if (problem_) problem_ = cupti_.done(result, what);
    }
};

}  // namespace

Result<std::shared_ptr<DeviceTimeline>> open_timeline(cudaStream_t stream) {
    auto timeline = std::make_shared<CuptiTimeline>(DP_TRY(Cupti::open()), stream);
    DP_TRY(timeline->open());
    return timeline;
}

std::shared_ptr<DeviceTimeline> name_ranges() {
    return std::make_shared<NvtxRanges>();
}

bool has_nvtx_tool() {
    for (const char* variable : kTools)
        if (const char* library = std::getenv(variable); library != nullptr && *library != '\0') return true;
    return false;
}

}  // namespace dp::trainer
