// SPDX-License-Identifier: Apache-2.0
//
// The options that give a model its shape; options.cpp adds them to the command line.
#ifndef TRAINER_COMMANDS_MODEL_OPTIONS_HPP
#define TRAINER_COMMANDS_MODEL_OPTIONS_HPP

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/models/model.hpp"

namespace CLI {
class App;
}

namespace dp::trainer {

struct ModelOptions {
    std::optional<std::int64_t> image_size, features;
    std::string gpt_size;
    std::optional<std::int64_t> layers, hidden, heads, sequence, vocabulary;
    bool recompute = false;
    std::optional<double> initial_deviation, hidden_dropout, attention_dropout;
};

void add_model_options(CLI::App& app, ModelOptions& options);

// The shape of the model. `vocabulary`: of the data, where it is known. Refuses a shape that cannot be, and
// an option that this model has no use for.
Result<ModelShape> shape_of(const ModelOptions& options, std::string_view model,
                            std::optional<std::int64_t> vocabulary);

}  // namespace dp::trainer

#endif
