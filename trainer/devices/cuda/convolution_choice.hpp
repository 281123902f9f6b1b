// SPDX-License-Identifier: Apache-2.0
//
// Which of cuDNN's algorithms for a convolution is taken. Pure, and without cuDNN's types: convolution.cpp asks cuDNN for
// what it offers, fastest first.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace dp::trainer {

struct OfferedAlgorithm {
    bool works = false;       // for this convolution
    bool same_bits = false;   // each time
    bool by_fp32 = false;     // multiplies in fp32, not in TF32 or less
    bool transforms = false;  // FFT or Winograd, which round more
    std::size_t workspace = 0;
};

// Its place among those that are offered; nullopt: none can be taken. The fastest whose workspace is at most `most` bytes, else the
// one with the smallest. What is free at the moment does not count: then a training that is resumed might come to other bits. In
// fp32, where the CPU is the reference, without transforms; bf16 may use any unit of the GPU, because all of them add up in fp32.
inline std::optional<std::size_t> choose_convolution(std::span<const OfferedAlgorithm> offered, bool in_bf16,
                                                     std::size_t most) {
    std::optional<std::size_t> smallest;
    for (std::size_t i = 0; i < offered.size(); ++i) {
        const OfferedAlgorithm& one = offered[i];
        if (!one.works || !one.same_bits || (!in_bf16 && (!one.by_fp32 || one.transforms))) continue;
        if (one.workspace <= most) return i;
        if (!smallest || one.workspace < offered[*smallest].workspace) smallest = i;
    }
    return smallest;
}

}  // namespace dp::trainer
