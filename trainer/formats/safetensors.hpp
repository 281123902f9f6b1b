// SPDX-License-Identifier: Apache-2.0
//
// Files of tensors in the safetensors format (github.com/huggingface/safetensors, README.md, "Format"): the length of the
// header in 8 bytes, little-endian; the header, a JSON object; then the tensors' bytes, little-endian, row by row:
//
//   {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
//
// Offsets count from the end of the header. The tensors cover all bytes behind it, each once. A reader's errors are one line
// each and name the file; a file is never believed before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

inline constexpr std::size_t kLargestTensorHeader = 100'000'000;  // bytes; the format's own limit

// A tensor of a file. Its bytes are read when they are asked for, not mapped: a file that is cut meanwhile is an error then.
struct FileTensor {
    std::string dtype;  // "F32", "BF16", …
    Shape shape;
    std::uint64_t begin = 0, bytes = 0;  // where it lies in the file
    std::shared_ptr<const Fd> file = {};

    std::int64_t elements() const { return elements_of(shape); }
};
using FileTensors = std::map<std::string, FileTensor, std::less<>>;

// Pure: the tensors of a file of so many bytes that begins with `head`; more than the header need not be in it. The error is the reason
// alone.
Try<FileTensors> read_tensors(std::string_view head, std::uint64_t size);

// Pure: as many numbers of F32, F16 or BF16 as `to` has; exact. The error is the reason alone.
Try<void> convert_numbers(std::string_view dtype, std::span<const std::byte> stored, std::span<float> to);

Result<FileTensors> open_tensor_file(const std::filesystem::path& file);

// Of a file's tensor: its bytes from this one of its own on, which there must be; all its numbers. The error is the reason alone.
Try<void> read_bytes(const FileTensor& tensor, std::uint64_t from, std::span<std::byte> to);
Try<void> read_numbers(const FileTensor& tensor, std::span<float> to);

// A tensor to be written, of F32.
struct NewTensor {
    std::string name;
    Shape shape;
};
// Writes a file durably, with the metadata that PyTorch's readers ask for. `numbers` is asked for each tensor in turn, so one
// is in memory at a time. Errors are of `fault`.
Result<void> write_tensors(const std::filesystem::path& file, const std::vector<NewTensor>& tensors,
                           const std::function<Result<std::vector<float>>(std::size_t)>& numbers,
                           Fault fault);

// Pure: what precedes the tensors' bytes.
std::string tensor_header(const std::vector<NewTensor>& tensors);

}  // namespace dp::trainer
