// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint for the subcommands that use one and train nothing: generate, export and evaluate. They take no lock: a training
// may go on writing beside them.
#pragma once

#include <filesystem>
#include <string_view>

#include "trainer/checkpoint/manifest.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

struct SavedModel {
    std::filesystem::path path;  // of the checkpoint
    Manifest manifest;
    const ModelInfo* info;
    ModelShape shape;
    bool averaged = false;  // its parameters are the average that was saved (--weights=ema)
};

// What a subcommand does with it, for errors: "only gpt `use`". Of no model in particular: `model` is "".
struct WantedModel {
    std::string_view model, use;
    bool averaged = false;
};

// `path`: a directory of checkpoints, of which the newest whole one is taken, or a checkpoint. `option`: its name, for errors.
Result<SavedModel> open_saved_model(std::string_view option, const std::filesystem::path& path,
                                    const WantedModel& wanted = {});

// Whether the model's parameters are those that the checkpoint has. It need not be placed.
Result<void> check_parameters(const SavedModel& saved, const Model& model);
// Sets the parameters and buffers of the model, which has been placed. Ranks that share memory write the same.
Result<void> load_values(const SavedModel& saved, const Model& model, Device& device);

// Refuses the tokenizer of other data than the model was trained on, as far as that shows.
Result<void> check_vocabulary(std::int64_t tokens, const std::filesystem::path& data_directory,
                              const GptShape& shape);

}  // namespace dp::trainer
