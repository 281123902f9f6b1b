// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_speed.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace dp::doctor {
namespace {

TEST(GpuSpeed, EachGpuIsMeasuredAndItsResultsAreCompared) {
    const auto gpus = measure_gpus("0,3,5,6", DP_TEST_CUDA);
    ASSERT_EQ(gpus.size(), 4u);
    EXPECT_EQ(gpus[0].name, "0000:10:00.0");
    EXPECT_EQ(gpus[3].name, "0000:40:00.0");
    EXPECT_TRUE(gpus[1].is_broken);
    EXPECT_FALSE(gpus[2].is_broken) << "another program may have its memory";
    EXPECT_EQ(gpus[0].problem, "");
    // 8 blocks of 8 warps, each 20000 times 8 products; some hundred times a second.
    const double of_a_launch = 8.0 * 8 * 20000 * 8 * 4096;
    EXPECT_GT(gpus[0].multiplies, 10 * of_a_launch);
    EXPECT_LT(gpus[0].multiplies, 10000 * of_a_launch);
    EXPECT_GT(gpus[0].copies, 10 * 2.0 * (256 << 20));
    EXPECT_EQ(gpus[1].problem, "1 of 2048 results of a multiplication are wrong");
    EXPECT_EQ(gpus[2].problem, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)");
    EXPECT_EQ(gpus[3].problem, "");
    EXPECT_EQ(gpus[3].multiplies, 0) << "no tensor cores for bf16";
    EXPECT_GT(gpus[3].copies, 0);
}

TEST(GpuSpeed, WithoutGpusOrADriverThereIsNothingToMeasure) {
    EXPECT_TRUE(measure_gpus("", DP_TEST_CUDA).empty());
    EXPECT_TRUE(measure_gpus("0", "/nonexistent/libcuda.so.1").empty());
    EXPECT_TRUE(check_gpu_speeds({}).empty());
}

TEST(GpuSpeed, WhereCudaDoesNotWorkThatIsTold) {
    const auto crash = measure_gpus("crash", DP_TEST_CUDA);
    ASSERT_EQ(crash.size(), 1u);
    EXPECT_EQ(crash[0].problem, "it crashes");
    EXPECT_TRUE(crash[0].is_broken);
    const auto lost = measure_gpus("0,9,1", DP_TEST_CUDA);
    ASSERT_EQ(lost.size(), 2u);
    EXPECT_EQ(lost[0].problem, "it finds 1 of the 3 in CUDA_VISIBLE_DEVICES=0,9,1");
    EXPECT_EQ(check_gpu_speeds(lost)[0].level, Level::fault);
    EXPECT_EQ(lost[1].problem, "");
}

TEST(GpuSpeed, TheChecks) {
    const auto found =
        check_gpu_speeds({{"a", false, "", 600e12, 3e12},
                          {"b", false, "", 590e12, 3e12},
                          {"c", false, "", 300e12, 3e12},
                          {"d", false, "", 600e12, 1e12},
                          {"e", true, "3 of 2048 results of a multiplication are wrong", 600e12, 0},
                          {"f", false, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)", 0, 0},
                          {"g", false, "", 0, 3e12}});
    ASSERT_EQ(found.size(), 7u);
    EXPECT_EQ(found[0].level, Level::ok);
    EXPECT_EQ(found[0].seen, "600 Tflop/s in bf16, memory 3000 GB/s");
    EXPECT_EQ(found[1].level, Level::ok);
    EXPECT_EQ(found[2].level, Level::warning);
    EXPECT_EQ(found[2].seen, "300 Tflop/s in bf16, memory 3000 GB/s; the median here is 600 and 3000");
    EXPECT_EQ(found[3].level, Level::warning);
    EXPECT_EQ(found[4].level, Level::fault);
    EXPECT_EQ(found[4].check, "e at work");
    EXPECT_EQ(found[5].level, Level::warning);
    EXPECT_EQ(found[5].seen, "not measured: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)");
    EXPECT_EQ(found[6].level, Level::ok) << "older than bf16";
    for (const Finding& one : found) EXPECT_EQ(one.level == Level::ok, one.remedy.empty());
}

}  // namespace
}  // namespace dp::doctor
