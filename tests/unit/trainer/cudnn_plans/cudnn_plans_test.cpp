// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's own cuDNN takes the graphs of devices/cuda/attention_graph.hpp: its engines compile kernels of them, for GPUs that cuDNN
// is told of and that are not there. That the kernels come to the right numbers is not seen here; `trainer compile` sees it where a
// GPU is.
#include <gtest/gtest.h>

#include <iostream>

#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cuda/attention_graph.hpp"
#include "trainer/devices/cuda/cudnn_attention_choice.hpp"
#include "trainer/devices/cuda/cudnn_library.hpp"

namespace dp::trainer {
namespace {

// By NVIDIA's data sheets, and by the table of compute capabilities of the CUDA Programming Guide.
struct Gpu {
    const char* name;
    int capability, sms, shared, l2;
};
constexpr Gpu kA100{"NVIDIA A100-SXM4-80GB", 800, 108, 163 << 10, 40 << 20},
    kH100{"NVIDIA H100 80GB HBM3", 900, 132, 227 << 10, 50 << 20},
    kB200{"NVIDIA B200", 1000, 148, 227 << 10, 126 << 20}, kL40s{"NVIDIA L40S", 890, 142, 99 << 10, 96 << 20};

// As cuDNN writes them of a GPU that is there.
CudnnGpu described(const Gpu& gpu) {
    const auto number = [](const char* name, long long value) {
        return ",\"" + std::string(name) + "\":" + std::to_string(value);
    };
    return {nullptr, "{\"deviceName\":\"" + std::string(gpu.name) + "\"" +
                         ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]" +
                         number("cudaDeviceId", 0) + number("deviceVer", gpu.capability) +
                         number("driverVer", 13000) + number("totalGlobalMem", 48LL << 30) +
                         number("regsPerBlock", 65536) + number("multiProcessorCount", gpu.sms) +
                         number("warpSize", 32) + number("maxSharedMemoryPerBlock", 48 << 10) +
                         number("maxSharedMemoryPerBlockOptin", gpu.shared) +
                         number("reservedSharedMemoryPerBlock", 1024) + number("maxRegistersPerSM", 65536) +
                         number("maxCtasPerSM", 32) + number("maxThreadsPerBlock", 1024) +
                         number("maxThreadsPerSM", gpu.capability == 890 ? 1536 : 2048) +
                         number("pciDeviceId", 0) + number("isTccDriver", 0) +
                         number("supportCoopLaunch", 1) + number("smClockRateKHz", 1980000) +
                         number("memClockRateKHz", 2619000) + number("l2CacheSize", gpu.l2) + "}"};
}

// 124M's: 64 sequences of 1024 tokens, 12 heads of 64.
constexpr AttentionShape kGpt{64, 12, 1024, 64};

class CudnnPlans : public ::testing::Test {
 protected:
    void SetUp() override {
        if (cudnn().missing != nullptr) GTEST_SKIP() << cudnn().missing << " is not found";
        if (cudnn().cudnnGetVersion() < 91900)
            GTEST_SKIP() << "cuDNN " << cudnn().cudnnGetVersion()
                         << " is older than 9.19, for which this is known";
    }
};

TEST_F(CudnnPlans, AreMadeForTheForwardPass) {
    for (const Gpu& gpu : {kA100, kH100, kB200, kL40s}) {
        const auto plan =
            AttentionPlan::make(kGpt, AttentionPass::forward, described(gpu), kernels_workspace(gpu.sms));
        ASSERT_TRUE(plan) << gpu.name << ": " << plan.error().message;
        std::cout << gpu.name << ", forward: engine " << plan->engine() << ", workspace " << plan->workspace()
                  << "\n";
    }
}

TEST_F(CudnnPlans, AreMadeForAPartOfTheBackwardPassInTheKernelsWorkspace) {
    struct Case {
        Gpu gpu;
        AttentionShape shape;
    };
    for (const auto& [gpu, whole] : {Case{kA100, kGpt},
                                     {kH100, kGpt},
                                     {kL40s, kGpt},
                                     {kH100, {2, 4, 2048, 128}},
                                     {kH100, {3, 5, 100, 80}}}) {
        const std::int64_t most = kernels_workspace(gpu.sms);
        AttentionShape shape = whole;
        shape.sequences = sequences_at_a_time(whole, most);
        ASSERT_GT(shape.sequences, 0) << gpu.name;
        const auto plan = AttentionPlan::make(shape, AttentionPass::backward, described(gpu),
                                              most - bytes_of_products(shape));
        ASSERT_TRUE(plan) << gpu.name << ", heads of " << shape.size << ": " << plan.error().message;
        std::cout << gpu.name << ", backward of " << shape.sequences << " sequences, heads of " << shape.size
                  << ": engine " << plan->engine() << ", workspace " << plan->workspace() << "\n";
    }
}

TEST_F(CudnnPlans, AreNotMadeForAGpuThatIsTooOld) {
    const auto old = AttentionPlan::make(kGpt, AttentionPass::forward,
                                         described({"old", 700, 80, 96 << 10, 6 << 20}), 1 << 20);
    ASSERT_FALSE(old);
    EXPECT_NE(old.error().message.find("cuDNN"), std::string::npos) << old.error().message;
}

}  // namespace
}  // namespace dp::trainer
