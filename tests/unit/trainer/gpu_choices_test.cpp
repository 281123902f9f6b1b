// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA module decides without a GPU: which of cuDNN's algorithms is taken, and which NCCL is refused.
#include "trainer/devices/cuda/convolution_choice.hpp"
#include "trainer/devices/nccl_version.hpp"

#include <gtest/gtest.h>

#include <array>

namespace dp::trainer {
namespace {

constexpr OfferedAlgorithm good(std::size_t workspace) {
    return {.works = true, .same_bits = true, .by_fp32 = true, .transforms = false, .workspace = workspace};
}

TEST(ConvolutionChoice, IsTheFastestThatGivesTheSameBitsWithLittleMemory) {
    OfferedAlgorithm missing = good(0), changing = good(0), by_tf32 = good(0), fft = good(0);
    missing.works = changing.same_bits = by_tf32.by_fp32 = false;
    fft.transforms = true;
    using Place = std::optional<std::size_t>;
    struct Case {
        std::vector<OfferedAlgorithm> offered;
        Place in_fp32, in_bf16;
    };
    const std::array cases{
        Case{{}, {}, {}},
        Case{{good(100), good(0)}, 0, 0},
        Case{{good(101), good(100), good(0)}, 1, 1},
        Case{{good(300), good(200), good(400)}, 1, 1},  // none is small
        Case{{missing, changing}, {}, {}},
        Case{{missing, changing, good(100)}, 2, 2},
        Case{{by_tf32, fft, good(100)}, 2, 0},
        Case{{fft, good(200)}, 1, 0},
        Case{{by_tf32}, {}, 0},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
        EXPECT_EQ(choose_convolution(cases[i].offered, false, 100), cases[i].in_fp32) << i;
        EXPECT_EQ(choose_convolution(cases[i].offered, true, 100), cases[i].in_bf16) << i;
    }
}

TEST(NcclVersion, IsRefusedWhereItIsOld) {
    EXPECT_FALSE(old_nccl_text(21800));
    EXPECT_FALSE(old_nccl_text(23004));
    for (const auto& [version, text] :
         {std::pair{21701, "NCCL 2.17.1 is too old: the trainer needs 2.18 or newer"},
          {20900, "NCCL 2.9.0 is"},
          {2804, "NCCL 2.8.4 is"}})
        EXPECT_EQ(old_nccl_text(version).value_or("").find(text), 0u) << version;
}

}  // namespace
}  // namespace dp::trainer
