// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of gpt for the subcommands that use one: generate and export.
#pragma once

#include <filesystem>
#include <string_view>

#include "trainer/checkpoint/manifest.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

struct SavedGpt {
    std::filesystem::path path;  // of the checkpoint
    Manifest manifest;
    GptShape shape;
};

// `path`: a directory of checkpoints, of which the newest whole one is taken, or a checkpoint. `option`: its name; `use`: what
// only gpt is good for. Both are for errors.
Result<SavedGpt> open_saved_gpt(std::string_view option, const std::filesystem::path& path,
                                std::string_view use);

// Refuses the tokenizer of other data than the model was trained on, as far as that shows.
Result<void> check_vocabulary(const Tokenizer& tokenizer, const std::filesystem::path& data_directory,
                              const GptShape& shape);

}  // namespace dp::trainer
