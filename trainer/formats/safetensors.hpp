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
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

inline constexpr std::size_t kLargestTensorHeader = 100'000'000;  // bytes; the format's own limit

// A tensor of a file. `data` belongs to whoever gave the file's bytes.
struct FileTensor {
    std::string dtype;  // "F32", "BF16", …
    Shape shape;
    std::span<const std::byte> data;

    std::int64_t elements() const { return elements_of(shape); }
};
using FileTensors = std::map<std::string, FileTensor, std::less<>>;

// Pure: the tensors in the bytes of a whole file. The error is the reason alone.
Try<FileTensors> read_tensors(std::string_view file);

// Numbers of a tensor of F32, F16 or BF16; exact. `to` has as many as the tensor. The error is the reason alone.
Try<void> convert_numbers(const FileTensor& tensor, std::span<float> to);

// A file that is mapped, not read: its tensors are valid as long as it is. It must not be cut short meanwhile.
class TensorFile {
 public:
    static Result<TensorFile> open(const std::filesystem::path& file);

    const FileTensors& tensors() const { return tensors_; }

 private:
    std::shared_ptr<const char> mapping_;
    FileTensors tensors_;
};

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
