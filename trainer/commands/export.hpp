// SPDX-License-Identifier: Apache-2.0
//
// `trainer export`: a checkpoint of gpt in the files that other programs read. main.cpp calls it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct ExportOptions {
    std::filesystem::path checkpoint;  // a directory of checkpoints, or one of them
    std::string format = "safetensors";
    std::optional<std::filesystem::path> data_directory;  // of the tokenizer
    std::filesystem::path output;                         // the directory to make
    bool averaged = false;                                // the weights' average instead of them
};

// Leaves a whole directory or none, and says what it has written.
Result<void> export_model(const ExportOptions& options);

}  // namespace dp::trainer
