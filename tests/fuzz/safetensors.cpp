// SPDX-License-Identifier: Apache-2.0
//
// A file of weights (--init-from): whatever is in it, a tensor that is read lies within the file, beside the others, and has the
// bytes that its shape asks for; and read_tensors() reads what tensor_header() writes of it.
#include "trainer/formats/safetensors.hpp"

#include <vector>

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    using namespace dp::trainer;
    const std::string_view file = fuzz::text_of(data, size);
    const auto tensors = read_tensors(file, file.size());
    if (!tensors) {
        fuzz::must(!tensors.error().message.empty(), "a refusal says why");
        fuzz::must(tensors.error().message.find('\n') == std::string::npos, "a refusal is one line");
        return 0;
    }
    size_t covered = 0;
    std::vector<NewTensor> same;
    for (const auto& [name, tensor] : *tensors) {
        fuzz::must(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin,
                   "a tensor lies within the file");
        fuzz::must(tensor.elements() >= 0 && static_cast<size_t>(tensor.elements()) <= tensor.bytes,
                   "no number has less than a byte");
        covered += tensor.bytes;
        std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
        const auto stored = std::as_bytes(std::span(file)).subspan(tensor.begin, tensor.bytes);
        if (convert_numbers(tensor.dtype, stored, numbers) && tensor.dtype == "F32")
            same.push_back({name, tensor.shape});
    }
    fuzz::must(covered < file.size(), "no byte belongs to two tensors");
    std::string written = tensor_header(same);
    for (const auto& one : same)
        written.append(static_cast<size_t>(elements_of(one.shape)) * sizeof(float), '\0');
    const auto again = read_tensors(written, written.size());
    fuzz::must(again && again->size() == same.size(), "a header written is read");
    return 0;
}
