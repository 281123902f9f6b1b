// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs are refused, and that the CUDA module was built for those that it says.
#include "trainer/devices/gpu_kernels.hpp"

#include <gtest/gtest.h>

namespace dp::trainer {
namespace {

TEST(GpuKernels, RunOnGpusOfTheirMajorNumberAndPtxOnAllLaterOnes) {
    const std::string packaged = "80-real 86-real 89-real 90-real 100-real 120-virtual";
    struct {
        std::string built;
        int capability;
        bool runs;
    } const cases[] = {
        {packaged, 70, false},    {packaged, 75, false},     {packaged, 80, true},  // A100
        {packaged, 86, true},                                                       // A40
        {packaged, 87, true},                                                       // Orin
        {packaged, 89, true},                                                       // L40S
        {packaged, 90, true},                                                       // H100
        {packaged, 100, true},                                                      // B200
        {packaged, 103, true},                                                      // B300
        {packaged, 110, false},   {packaged, 120, true},     {packaged, 121, true},
        {packaged, 130, true},    {"90", 80, false},         {"90", 89, false},
        {"90", 90, true},         {"90", 100, true},         {"90-real", 90, true},
        {"90-real", 100, false},  {"86-real", 80, false},    {"80-virtual", 75, false},
        {"80-virtual", 80, true}, {"80-virtual", 120, true}, {"90a-real", 90, true},
        {"90a-real", 91, false},  {"90a", 100, false},       {"", 90, false},
        {"native", 90, false},
    };
    for (const auto& c : cases)
        EXPECT_EQ(has_kernels_for(c.built, c.capability), c.runs) << c.built << " on " << c.capability;
}

TEST(GpuKernels, ThatAreMissingAreSaidWithTheGpusName) {
    EXPECT_EQ(no_kernels_text("Tesla V100-SXM2-16GB, sm_70", "80-virtual", 70),
              "Tesla V100-SXM2-16GB, sm_70 is too old: the trainer needs an A100 (sm_80) or a newer GPU");
    EXPECT_EQ(
        no_kernels_text("NVIDIA A100-SXM4-40GB, sm_80", "90-real", 80),
        "this build has no kernels for NVIDIA A100-SXM4-40GB, sm_80, only for 90-real; configure it with "
        "-DCMAKE_CUDA_ARCHITECTURES=80");
}

}  // namespace
}  // namespace dp::trainer
