// SPDX-License-Identifier: Apache-2.0
//
// NumPy's files of one array (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): "\x93NUMPY", the version (1, 2 or
// 3, and a zero), the length of what follows (u16; from version 2 on u32), a Python dictionary with the type, the order and the
// shape of the array, blanks and a newline; then the numbers. token_files.cpp opens them.
#pragma once

#include <string_view>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

struct NpyHeader {
    StoredAs type = StoredAs::u16;
    std::int64_t count = 0;  // of numbers
    std::int64_t bytes = 0;  // of the header: the numbers follow
};

// A longer header is of no array of tokens.
inline constexpr std::size_t kLongestNpyHeader = 4096;

// Pure, of a file's first kLongestNpyHeader bytes, or all if it has fewer. An error is the reason alone.
Try<NpyHeader> read_npy_header(std::string_view beginning);

Result<TokenRun> open_npy(const std::filesystem::path& file);

}  // namespace dp::trainer
