// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/sm_partition.hpp"

#include <vector>

namespace dp::trainer {
namespace {

// A function of the loaded driver, which may be older than these calls; nothing is linked against it.
template <typename Function>
Function* driver(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer{};
    if (cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &answer) !=
            cudaSuccess ||
        answer != cudaDriverEntryPointSuccess) {
        cudaGetLastError();  // no failure of the device's
        return nullptr;
    }
    return reinterpret_cast<Function*>(found);
}

struct Driver {
    decltype(::cuDeviceGet)* device_get = driver<decltype(::cuDeviceGet)>("cuDeviceGet");
    decltype(::cuDeviceGetAttribute)* attribute =
        driver<decltype(::cuDeviceGetAttribute)>("cuDeviceGetAttribute");
    decltype(::cuDeviceGetDevResource)* resource =
        driver<decltype(::cuDeviceGetDevResource)>("cuDeviceGetDevResource");
    decltype(::cuDevSmResourceSplitByCount)* split =
        driver<decltype(::cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
    decltype(::cuDevResourceGenerateDesc)* describe =
        driver<decltype(::cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
    decltype(::cuGreenCtxCreate)* create = driver<decltype(::cuGreenCtxCreate)>("cuGreenCtxCreate");
    decltype(::cuGreenCtxStreamCreate)* make_stream =
        driver<decltype(::cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");
    decltype(::cuGreenCtxDestroy)* destroy = driver<decltype(::cuGreenCtxDestroy)>("cuGreenCtxDestroy");

    bool whole() const {
        return device_get && attribute && resource && split && describe && create && make_stream && destroy;
    }
};

const Driver& the_driver() {
    static const Driver loaded;
    return loaded;
}

std::string number(unsigned value) {
    return std::to_string(value);
}

}  // namespace

Try<std::unique_ptr<SmPartition>> SmPartition::make(int index, const GpuShare& share) {
    const Driver& driver = the_driver();
    if (!driver.whole())
        return dp::fail("its driver has no green contexts (they came with CUDA 12.4)");
    std::string problem;
    auto ok = [&](CUresult result, const char* what) {
        if (result == CUDA_SUCCESS) return true;
        problem = std::string(what) + ": the driver says error " + std::to_string(static_cast<int>(result));
        return false;
    };
    CUdevice device = 0;
    CUdevResource all{};
    if (!ok(driver.device_get(&device, index), "finding the GPU") ||
        !ok(driver.resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "asking for the GPU's SMs"))
        return dp::fail(problem);
    const auto sms =
        sms_of_a_part(all.sm.smCount, share.parts, all.sm.minSmPartitionSize, all.sm.smCoscheduledAlignment);
    if (!sms)
        return dp::fail("its " + number(all.sm.smCount) + " SMs cannot be cut into " +
                                   number(share.parts) + " parts of at least " +
                                   number(all.sm.minSmPartitionSize));

    // As many parts as there can be, so that every rank on this GPU sees the same ones.
    unsigned groups = share.parts;
    std::vector<CUdevResource> parts(groups);
    CUdevResourceDesc chosen = nullptr;
    if (!ok(driver.split(parts.data(), &groups, &all, nullptr, 0, *sms), "cutting the GPU's SMs"))
        return dp::fail(problem);
    if (groups < share.first + share.count)
        return dp::fail("its " + number(all.sm.smCount) + " SMs make " + number(groups) +
                                   " parts of " + number(*sms) + " only");
    std::unique_ptr<SmPartition> made(new SmPartition);
    if (!ok(driver.describe(&chosen, &parts[share.first], share.count),
            "describing a part of the GPU's SMs") ||
        !ok(driver.create(&made->context_, chosen, device, CU_GREEN_CTX_DEFAULT_STREAM),
            "making a green context") ||
        !ok(driver.make_stream(&made->stream_, made->context_, CU_STREAM_NON_BLOCKING, 0),
            "making its stream"))
        return dp::fail(problem);
    for (std::uint32_t i = 0; i < share.count; ++i) made->sms_ += parts[share.first + i].sm.smCount;
    made->all_sms_ = all.sm.smCount;
    int mps = 0;
    made->mps_ = driver.attribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) == CUDA_SUCCESS && mps != 0;
    return made;
}

// Ignores results: nobody is left to tell.
SmPartition::~SmPartition() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (context_ != nullptr) the_driver().destroy(context_);
}

std::string SmPartition::description() const {
    return number(sms_) + " of " + number(all_sms_) + " SMs, " +
           (mps_ ? "beside other processes (MPS)" : "taking turns with other processes (MPS is not running)");
}

}  // namespace dp::trainer
