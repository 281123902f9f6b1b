// SPDX-License-Identifier: Apache-2.0
//
// A model's tensors as transformers' save_pretrained() leaves them: a safetensors file, or a directory with
// model.safetensors or, for large models, model.safetensors.index.json and the files that it names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainer/formats/safetensors.hpp"

namespace dp::trainer {

inline constexpr const char* kTensorFile = "model.safetensors";
inline constexpr const char* kModelConfig = "config.json";

struct TensorFiles {
    FileTensors tensors;                // of all files
    std::optional<std::string> config;  // the text of the config.json beside them, if there is one
};

// Errors name the file.
Result<TensorFiles> open_tensor_files(const std::filesystem::path& file_or_directory);

}  // namespace dp::trainer
