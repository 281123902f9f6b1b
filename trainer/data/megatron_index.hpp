// SPDX-License-Identifier: Apache-2.0
//
// Megatron-LM's token files (its IndexedDataset): NAME.bin has the tokens of one sequence after another, and NAME.idx says what
// lies there. All is little-endian:
//
//   "MMIDIDX\0\0"    9 bytes
//   version          u64: 1
//   type             u8: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16
//   sequences        u64
//   documents        u64: one more than there are
//   lengths          i32 of each sequence, in tokens
//   pointers         i64 of each sequence: its first byte in NAME.bin
//   documents        i64 of each: its first sequence; and the number of sequences
//
// token_files.cpp opens them.
#pragma once

#include <functional>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

struct MegatronIndex {
    StoredAs type = StoredAs::u16;
    std::int64_t sequences = 0, documents = 0, tokens = 0;
};

// Reads so many bytes of NAME.idx from `at` on.
using ReadIndex = std::function<Try<void>(std::int64_t at, void* to, std::size_t count)>;

// Checks that the sequences lie one after another and are all that NAME.bin has: then its tokens can be read without their
// index. Of very many it checks some everywhere, so that a set begins at once. An error is the reason alone.
Try<MegatronIndex> read_megatron_index(const ReadIndex& read, std::int64_t index_bytes,
                                       std::int64_t token_bytes);

// `file`: NAME.idx.
Result<TokenRun> open_megatron(const std::filesystem::path& file);

}  // namespace dp::trainer
