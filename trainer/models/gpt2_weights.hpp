// SPDX-License-Identifier: Apache-2.0
//
// gpt's parameters in files of GPT-2's weights with the names that Hugging Face's transformers gives them. gpt is the same
// function of the same parameters: layer norm (epsilon 1e-5) before attention and before the linear layers, biases everywhere,
// GELU by tanh, scores over the square root of a head's size, a head that is the token embedding. Only the linear layers'
// weights lie otherwise there, [inputs, outputs] (Conv1D).
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/formats/tensor_files.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

// A parameter of gpt, as it is in such a file.
struct Gpt2Tensor {
    std::string name;  // without the "transformer." that GPT2LMHeadModel has before it
    Shape shape;
    bool is_transposed;
};
Gpt2Tensor gpt2_tensor(const std::string& parameter, const Shape& shape);

// The same numbers as [columns, rows] of [rows, columns].
std::vector<float> transposed(std::span<const float> numbers, std::int64_t rows, std::int64_t columns);

// What the files say of their model's size; `ours` has the number of heads, where they do not say it.
Result<GptShape> gpt2_shape_of(const std::filesystem::path& from, const GptShape& ours);

class Gpt2Weights {
 public:
    // Checks that the files hold just the parameters of a gpt of this shape. `declared`: its own. An error names the tensor,
    // both shapes, and the options of a model that fits.
    static Result<Gpt2Weights> open(const std::filesystem::path& from, const GptShape& shape,
                                    const ParameterSet& declared);

    // False: nothing says how many attention heads the weights are of.
    bool has_config() const { return files_.config.has_value(); }

    // Sets the parameters, which have been placed. Returns a hash of the values.
    Result<std::uint64_t> load(const ParameterSet& parameters, Device& device) const;

    Gpt2Weights(Gpt2Weights&&) = default;  // a copy's tensors would be the other's

 private:
    Gpt2Weights() = default;

    std::filesystem::path from_;
    TensorFiles files_;
    std::map<std::string, const FileTensor*> tensors_;  // by gpt2_tensor()'s name
};

}  // namespace dp::trainer
