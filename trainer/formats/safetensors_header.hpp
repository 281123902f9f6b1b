// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file as a stream of JSON's parts: what is not exactly a header is refused where it begins to
// differ, before anything is made of it. safetensors.cpp calls it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp::trainer {

// A tensor as the header describes it; nothing of it is checked against another or the file.
struct DescribedTensor {
    std::string name, dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

// In the header's order. The error is the reason alone.
Try<std::vector<DescribedTensor>> read_tensor_header(std::string_view json);

}  // namespace dp::trainer
