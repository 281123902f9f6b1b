// SPDX-License-Identifier: Apache-2.0
//
// NumPy's files of one array (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): "\x93NUMPY", the version (1, 2 or
// 3, and a zero), the length of what follows (u16; from version 2 on u32), a Python dictionary with the type, the order and the
// shape of the array, blanks and a newline; then the numbers. token_files.cpp opens those of tokens, image_arrays.cpp and
// prepare/image_set.cpp those of images.
#pragma once

#include <string_view>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

// What a header says of any array.
struct NpyArray {
    std::string type;  // such as "<f4"
    bool is_fortran = false;
    std::vector<std::int64_t> shape;
    std::int64_t bytes = 0;  // of the header: the numbers follow
};

struct NpyHeader {
    StoredAs type = StoredAs::u16;
    std::int64_t count = 0;  // of numbers
    std::int64_t bytes = 0;  // of the header: the numbers follow
};

// A longer header is of no array of tokens.
inline constexpr std::size_t kLongestNpyHeader = 4096;

// Pure, of a file's first kLongestNpyHeader bytes, or all if it has fewer. An error is the reason alone.
Try<NpyArray> read_npy_array(std::string_view beginning);
// The same, of an array of tokens.
Try<NpyHeader> read_npy_header(std::string_view beginning);

// What comes before the numbers of such an array, row by row: kNpyHeader bytes. It has at most 4 dimensions.
inline constexpr std::size_t kNpyHeader = 128;
std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape);

// An array whose numbers lie in the file, row by row and all of them.
struct NpyFile {
    NpyArray array;
    Fd file;

    // Bytes of a row: of all dimensions but the first.
    std::int64_t row_bytes() const;
    std::int64_t rows() const { return array.shape.empty() ? 1 : array.shape.front(); }
};
// `types`: those that are taken, such as "<f4 |u1". An error is the reason alone.
Try<NpyFile> open_npy_array(const std::filesystem::path& file, std::string_view types);

Result<TokenRun> open_npy(const std::filesystem::path& file);

}  // namespace dp::trainer
