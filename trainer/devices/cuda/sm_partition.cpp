// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/sm_partition.hpp"

#include <vector>

namespace dp::trainer {

// The header of CUDA 12.4 has neither the streams of green contexts nor how many SMs a part has at least; the others before 13 have
// not been looked at.
#if CUDART_VERSION >= 13000
namespace {

// Functions of the loaded driver, which may be older than these calls; nothing is linked against it.
struct Driver {
    bool is_whole = true;

#define DP_LOOK_UP(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(look_up(#name));
    DP_LOOK_UP(cuDeviceGet)
    DP_LOOK_UP(cuDeviceGetAttribute)
    DP_LOOK_UP(cuDeviceGetDevResource)
    DP_LOOK_UP(cuDevSmResourceSplitByCount)
    DP_LOOK_UP(cuDevResourceGenerateDesc)
    DP_LOOK_UP(cuGreenCtxCreate)
    DP_LOOK_UP(cuGreenCtxStreamCreate)
    DP_LOOK_UP(cuGreenCtxDestroy)
#undef DP_LOOK_UP

 private:
    void* look_up(const char* name) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult answer{};
        if (cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &answer) ==
                cudaSuccess &&
            answer == cudaDriverEntryPointSuccess)
            return found;
        cudaGetLastError();  // no failure of the device's
        is_whole = false;
        return nullptr;
    }
};

const Driver& the_driver() {
    static const Driver loaded;
    return loaded;
}

}  // namespace

Try<std::unique_ptr<SmPartition>> SmPartition::make(int index, const GpuShare& share) {
    const Driver& driver = the_driver();
    if (!driver.is_whole) return dp::fail("its driver has no green contexts (they came with CUDA 12.4)");
    const auto done = [](CUresult result, const char* what) -> Try<void> {
        if (result == CUDA_SUCCESS) return {};
        return dp::fail(std::string(what) + ": driver error " + std::to_string(static_cast<int>(result)));
    };
    CUdevice device = 0;
    CUdevResource all{};
    DP_TRY(done(driver.cuDeviceGet(&device, index), "finding the GPU"));
    DP_TRY(
        done(driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "reading the GPU's SMs"));
    const auto sms =
        sms_of_a_part(all.sm.smCount, share.parts, all.sm.minSmPartitionSize, all.sm.smCoscheduledAlignment);
    if (!sms)
        return dp::fail("its " + std::to_string(all.sm.smCount) + " SMs cannot be divided into " +
                        std::to_string(share.parts) + " parts of at least " +
                        std::to_string(all.sm.minSmPartitionSize));

    // As many parts as there can be, so that every rank on this GPU sees the same ones.
    unsigned groups = share.parts;
    std::vector<CUdevResource> parts(groups);
    CUdevResourceDesc chosen = nullptr;
    DP_TRY(done(driver.cuDevSmResourceSplitByCount(parts.data(), &groups, &all, nullptr, 0, *sms),
                "dividing the GPU's SMs"));
    if (groups < share.first + share.count)
        return dp::fail("its " + std::to_string(all.sm.smCount) + " SMs make only " + std::to_string(groups) +
                        " parts of " + std::to_string(*sms));
    std::unique_ptr<SmPartition> made(new SmPartition);
    DP_TRY(done(driver.cuDevResourceGenerateDesc(&chosen, &parts[share.first], share.count),
                "describing a part of the GPU's SMs"));
    DP_TRY(done(driver.cuGreenCtxCreate(&made->context_, chosen, device, CU_GREEN_CTX_DEFAULT_STREAM),
                "creating a green context"));
    DP_TRY(done(driver.cuGreenCtxStreamCreate(&made->stream_, made->context_, CU_STREAM_NON_BLOCKING, 0),
                "creating its stream"));
    for (std::uint32_t i = 0; i < share.count; ++i) made->sms_ += parts[share.first + i].sm.smCount;
    made->all_sms_ = all.sm.smCount;
    int mps = 0;
    made->mps_ = driver.cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) == CUDA_SUCCESS &&
                 mps != 0;
    return made;
}

// Ignores results: the process is about to end.
SmPartition::~SmPartition() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (context_ != nullptr) the_driver().cuGreenCtxDestroy(context_);
}

#else

Try<std::unique_ptr<SmPartition>> SmPartition::make(int, const GpuShare&) {
    return dp::fail("this build is for CUDA 12: parts of a GPU need one for CUDA 13 or newer");
}
SmPartition::~SmPartition() = default;

#endif

std::string SmPartition::description() const {
    return std::to_string(sms_) + " of " + std::to_string(all_sms_) + " SMs, " +
           (mps_ ? "beside other processes (MPS)" : "taking turns with other processes (MPS is not running)");
}

}  // namespace dp::trainer
