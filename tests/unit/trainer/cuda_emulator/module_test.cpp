// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA module decides: how NCCL reduces a tensor, in which words a GPU is refused, into how many parts rows are split, which
// are kept, in how many passes attention's gradient is made, and which calls of a step are captured together.
#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cuda/captured_step.hpp"
#include "trainer/devices/cuda/nccl_types.hpp"
#include "trainer/devices/cuda/refusals.hpp"
#include "trainer/devices/cuda/row_parts.hpp"
#include "trainer/devices/cuda/shared_rows.hpp"

namespace dp::trainer {
namespace {

TEST(NcclTypes, AreThoseOfTheTensorsAndNoOthers) {
    EXPECT_EQ(type_to_reduce(Type::f32), ncclFloat32);
    EXPECT_EQ(type_to_reduce(Type::f64), ncclFloat64);
    EXPECT_EQ(type_to_reduce(Type::i64), ncclInt64);
    EXPECT_EQ(type_to_reduce(Type::bf16), ncclBfloat16);
    for (const Type type : {Type::u8, Type::u16, Type::i32}) EXPECT_EQ(type_to_reduce(type), std::nullopt);
}

TEST(CapturedCalls, AreThoseThatFollowEachOtherAndStayAsTheyAre) {
    constexpr CallFacts kSame{false, false}, kApart{true, false}, kChanges{false, true}, kBoth{true, true};
    struct Case {
        std::vector<CallFacts> calls;
        std::vector<CallRun> runs;
    };
    for (const auto& [calls, runs] : std::vector<Case>{
             {{}, {}},
             {{kApart}, {}},
             {{kApart, kSame}, {{0, 2}}},
             {{kApart, kSame, kApart, kSame, kSame}, {{0, 2}, {2, 5}}},
             {{kApart, kSame, kApart}, {{0, 2}}},
             {{kBoth, kChanges, kSame, kSame, kChanges, kSame}, {{2, 4}}},
             {{kApart, kSame, kChanges, kSame, kSame}, {{0, 2}, {3, 5}}},
             {{kSame, kBoth, kSame, kSame, kBoth}, {{2, 4}}},
             {{kChanges, kApart, kSame}, {{1, 3}}},
         })
        EXPECT_EQ(runs_of(calls), runs);
}

// Two letters a step: s, the same as before, or d, different; and whether it is captured after it, + or -.
TEST(CapturedCalls, AreThoseAgainThatStayAsTheyAreOnceMore) {
    for (const std::string_view steps :
         {"s+s+", "d-d-d-", "d-s+s+", "d-s+d-s+d-s+", "d-s+d-s+d-s+d-s-s-", "d-d-s+d-s+"}) {
        CallFacts call{true, false};
        for (std::size_t i = 0; i < steps.size(); i += 2) {
            call = after_step(call, steps[i] == 's');
            EXPECT_EQ(call.changes, steps[i + 1] == '-') << steps << ", " << i;
            EXPECT_TRUE(call.is_apart);
        }
    }
}

TEST(Refusals, SayWhatToDo) {
    const GpuSituation unset{{}, 13000, 13000}, empty{"", 13000, 13000}, wrong{"7", 13000, 13000};
    const GpuSituation old{{}, 12080, 13000}, none{{}, 0, 13000}, older{{}, 11040, 12090};
    struct Case {
        cudaError_t said;
        const GpuSituation& here;
        const char* text;
    };
    const std::array cases{
        Case{cudaErrorNoDevice, unset, "no GPU is visible; check CUDA_VISIBLE_DEVICES and Slurm's --gres"},
        Case{cudaSuccess, empty,
             "no GPU is visible: CUDA_VISIBLE_DEVICES is empty; ask Slurm for GPUs (--gres=gpu:1), or unset "
             "it"},
        Case{cudaErrorNoDevice, wrong,
             "no GPU is visible: CUDA_VISIBLE_DEVICES=7 names none of this machine's; nvidia-smi -L lists "
             "them"},
        Case{cudaErrorInsufficientDriver, old,
             "the NVIDIA driver is for CUDA 12.8, but this build needs one for CUDA 13.0: 580 or newer; "
             "update it, "
             "or build the trainer with an older CUDA"},
        Case{cudaErrorInsufficientDriver, older,
             "the NVIDIA driver is for CUDA 11.4, but this build needs one for CUDA 12.9: 525 or newer; "
             "update it, "
             "or build the trainer with an older CUDA"},
        Case{cudaErrorInsufficientDriver, none,
             "no NVIDIA driver is loaded, though its library is here; see nvidia-smi and the kernel's log"},
        Case{cudaErrorDevicesUnavailable, unset,
             "the GPU is taken: another process has it, and its compute mode lets one process use it "
             "(nvidia-smi "
             "-q -d COMPUTE); give each rank a GPU of its own, or change the mode"},
        Case{cudaErrorNoDevice, GpuSituation{.visible = "NoDevFiles"},
             "no GPU is visible: CUDA_VISIBLE_DEVICES is NoDevFiles; ask Slurm for GPUs (--gres=gpu:1), or "
             "unset it"},
        Case{cudaErrorUnknown, unset,
             "the GPU is lost or broken, or nvidia-uvm is not loaded or not allowed to this job "
             "(/dev/nvidia-uvm): CUDA says "
             "words; see the kernel's log (dmesg, Xid)"},
        Case{cudaErrorDeviceUninitialized, unset,
             "the GPU is lost or broken (words); see nvidia-smi and the kernel's log (dmesg, Xid), and leave "
             "the "
             "node out (--exclude)"},
        Case{cudaErrorMemoryAllocation, unset, "CUDA cannot open the GPU: words"},
    };
    for (const Case& one : cases) EXPECT_EQ(refusal_text(one.said, "words", one.here), one.text);
    for (const auto said :
         {cudaErrorSystemNotReady, cudaErrorSystemDriverMismatch, cudaErrorECCUncorrectable})
        EXPECT_EQ(refusal_text(said, "words", unset).find("CUDA cannot"), std::string::npos) << said;
}

TEST(RowParts, CoverAllRowsAndHaveRoom) {
    struct Case {
        std::int64_t rows, columns, of_part, count;
    };
    for (const auto& [rows, columns, of_part, count] : {Case{0, 768, 16, 1},
                                                        {1, 768, 16, 1},
                                                        {16, 768, 16, 1},
                                                        {17, 768, 16, 2},
                                                        {8192, 768, 16, 512},
                                                        {65536, 768, 71, 924},
                                                        {65536, 1600, 147, 446},
                                                        {100, std::int64_t{1} << 21, 100, 1}}) {
        const auto split = kernels::layer_norm_parts(rows, columns);
        EXPECT_EQ(split.rows, of_part) << rows << ", " << columns;
        EXPECT_EQ(split.count, count) << rows << ", " << columns;
        EXPECT_GE(split.rows * split.count, rows);
        if (count > 1) {
            EXPECT_LE(2 * split.count * columns * 4, 8 << 20);
        }
    }
    EXPECT_EQ(kernels::row_parts(65536, 64, 128).count, 128);
    EXPECT_EQ(kernels::row_parts(65, 64, 128).count, 2);
}

TEST(SharedRows, AreThoseThatCachesDoNotHoldAndABlockDoes) {
    constexpr std::size_t kOfH100 = 227 << 10, kOfA100 = 163 << 10, kOfL40 = 99 << 10;
    struct Case {
        std::int64_t numbers;
        std::size_t size, most, bytes;
    };
    for (const auto& [numbers, size, most, bytes] : {Case{50257, 2, kOfH100, 100530},
                                                     {50257, 2, kOfA100, 100530},
                                                     {50257, 2, kOfL40, 100530},
                                                     {50688, 2, kOfL40, 0},
                                                     {50257, 4, kOfH100, 201044},
                                                     {50257, 4, kOfA100, 0},
                                                     {50257, 2, 100530 + 511, 0},
                                                     {50257, 2, 100530 + 512, 100530},
                                                     {12280, 2, kOfH100, 0},
                                                     {12281, 2, kOfH100, 24578},
                                                     {50257, 2, 0, 0}})
        EXPECT_EQ(kernels::bytes_of_kept_row(numbers, size, most), bytes)
            << numbers << ", " << size << ", " << most;
}

TEST(BackwardPasses, AreOneWhereThereAreHeadsForAllSms) {
    constexpr std::int64_t kH100 = 227 << 10, kA100 = 163 << 10, kL40 = 99 << 10;
    struct Case {
        BackwardShape shape;
        bool is_one;
        std::int64_t room = 0;
    };
    constexpr std::int64_t kFacts = 1024 * 16, kOfBlock = 1024 * 64 * 4 + kFacts;
    for (
        const auto& [shape, is_one, room] :
        {Case{{768, 1024, 64, 132, kH100}, true, 264 * kOfBlock},
         {{768, 1024, 64, 108, kA100}, true, 216 * kOfBlock},
         {{768, 1024, 64, 142, kL40}, false},
         {{768, 1024, 65, 132, kH100}, false},
         {{768, 1024, 64, 132, 2 * 76928 - 1025}, false},
         {{768, 1024, 64, 132, 2 * 76928 - 1024}, true, 264 * kOfBlock},
         {{768, 1024, 33, 132, kH100}, true, 264 * kOfBlock},
         {{768, 1024, 32, 132, kH100}, true, 264 * (1024 * 32 * 4 + kFacts)},
         {{384, 1024, 64, 132, kH100}, true, 264 * kOfBlock},
         // Sequences for which the workspace has no room, and shorter heads, or few of them, for which it has.
         {{768, 1025, 64, 132, kH100}, false},
         {{768, 1920, 32, 132, kH100}, true, 264 * 1920 * (32 * 4 + 16)},
         {{132, 2048, 64, 132, kH100}, true, 132 * 2048 * (64 * 4 + 16)},
         // Some SMs have one block, and the others two.
         {{192, 1024, 64, 132, kH100}, false},
         {{132, 1024, 64, 132, kH100}, true, 132 * kOfBlock},
         {{12, 1024, 64, 132, kH100}, false},
         // Most of a group of keys is later than the queries.
         {{264, 64, 64, 132, kH100}, false},
         {{264, 65, 64, 132, kH100}, true, 264 * 128 * (64 * 4 + 16)},
         // The emulated GPU, in tests of operations.
         {{4, 70, 64, 2, kH100}, true, 4 * 128 * (64 * 4 + 16)},
         {{6, 193, 8, 2, kH100}, true, 4 * 256 * (32 * 4 + 16)}}) {
        EXPECT_EQ(takes_one_pass(shape), is_one) << shape.heads << " heads of " << shape.size << ", "
                                                 << shape.sequence << ", " << shape.most_shared;
        if (!is_one) continue;
        EXPECT_EQ(one_pass_blocks(shape) * one_pass_room(shape), room)
            << shape.heads << " heads of " << shape.size << ", " << shape.sequence;
    }
    EXPECT_EQ(one_pass_shared(64), 75904);
    EXPECT_EQ(kernels_workspace(132), 264 * kOfBlock);
    EXPECT_EQ(kernels_workspace(2), 8 << 20);
}

}  // namespace
}  // namespace dp::trainer
