// SPDX-License-Identifier: Apache-2.0
//
// Whether attention's backward pass in bf16 goes over the scores once on a GPU (devices/cuda/one_pass_attention.cu) or twice
// (tensor_attention.cu there), and the room for it. Pure: for the kernels and the roofline.
//
// One pass makes five products of each tile of scores, two passes seven. But a block of one pass has a whole head, so there must
// be heads for all SMs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dp::trainer {

// Of one pass: a block's threads, and how many keys and queries it works on at a time.
inline constexpr int kOnePassThreads = 128, kOnePassKeys = 128, kOnePassQueries = 64;
inline constexpr std::int64_t kLargestOnePassHead = 64;  // larger ones do not fit into registers
inline constexpr std::int64_t kQueryFacts = 16;    // bytes of what is known of a query (attention_scores.cuh)
inline constexpr std::int64_t kOnePassHead = 128;  // and of a head

struct BackwardShape {
    std::int64_t heads = 0;     // of all sequences
    std::int64_t sequence = 0;  // tokens
    std::int64_t size = 0;      // of a head
    std::int64_t sms = 0;
    std::int64_t most_shared = 0;  // bytes that a block may have
};

constexpr std::int64_t parts_of(std::int64_t tokens, std::int64_t part) {
    return (tokens + part - 1) / part;
}
constexpr std::int64_t padded_head(std::int64_t size) {
    return size <= 32 ? 32 : 64;
}

// Bytes of a block's shared memory: its keys, the gradients of their scores, two stages of queries with their gradients and with
// what is known of each, and the head.
constexpr std::int64_t one_pass_shared(std::int64_t size) {
    constexpr std::int64_t kBytes = 2, kApart = 8;  // numbers between rows
    return kBytes * (kOnePassKeys * (padded_head(size) + kApart) + kOnePassKeys * (kOnePassQueries + kApart) +
                     4 * kOnePassQueries * (padded_head(size) + kApart)) +
           2 * kOnePassQueries * kQueryFacts + kOnePassHead;
}

// Blocks that an SM has at a time: registers are there for two. An SM has 1 KiB more than a block may have, and CUDA takes 1 KiB
// of each block's.
constexpr std::int64_t one_pass_blocks_of_sm(const BackwardShape& shape) {
    constexpr std::int64_t kTaken = 1 << 10;
    return std::min<std::int64_t>(2, (shape.most_shared + kTaken) / (one_pass_shared(shape.size) + kTaken));
}

// All blocks: each has one head after another, and room for its own sums.
constexpr std::int64_t one_pass_blocks(const BackwardShape& shape) {
    return std::min(shape.heads, shape.sms * one_pass_blocks_of_sm(shape));
}

// Bytes of a block: the gradients of a head's queries in f32, and what is known of each query.
constexpr std::int64_t one_pass_room(const BackwardShape& shape) {
    return parts_of(shape.sequence, kOnePassQueries) * kOnePassQueries *
           (padded_head(shape.size) * static_cast<std::int64_t>(sizeof(float)) + kQueryFacts);
}

// Bytes for our kernels on a GPU of so many SMs. Layer norm's backward pass takes up to 5.5 MiB of them; an embedding's more than
// all, where a batch has more than some 60 M numbers. One pass has its blocks' room for sequences of 1024 tokens, or for longer
// ones of less.
constexpr std::int64_t kernels_workspace(std::int64_t sms) {
    return std::max(std::int64_t{8} << 20, 2 * sms * one_pass_room({.sequence = 1024, .size = 64}));
}

// The blocks' time is that of whole heads, one after another; that of two passes is divided evenly. A tile takes 70 % of its time
// in two passes: 5 of 7 products, and half the reads of shared memory, but it waits for more of them. Where an SM has one block
// left, that takes 65 % of the time of two. With less shared memory than for two there is nothing to do while one waits.
constexpr bool takes_one_pass(const BackwardShape& shape) {
    if (shape.size > kLargestOnePassHead || one_pass_blocks_of_sm(shape) < 2 ||
        one_pass_blocks(shape) * one_pass_room(shape) > kernels_workspace(shape.sms))
        return false;
    const std::int64_t side = parts_of(shape.sequence, kOnePassQueries),
                       groups = parts_of(shape.sequence, kOnePassKeys);
    // Pairs of 64 queries and 64 keys: a group of keys has those of all queries from its first key on.
    const std::int64_t pairs = side * (side + 1) / 2,
                       pairs_of_groups = 2 * (groups * side - groups * (groups - 1));
    const std::int64_t at_once = 2 * shape.sms, rest = shape.heads % at_once;
    const std::int64_t rounds =  // in percent
        shape.heads / at_once * 100 + (rest == 0           ? 0
                                       : rest <= shape.sms ? 65
                                                           : 100);
    return 70 * pairs_of_groups * rounds * at_once <= 100 * 100 * pairs * shape.heads;
}

}  // namespace dp::trainer
