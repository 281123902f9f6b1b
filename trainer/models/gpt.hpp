// SPDX-License-Identifier: Apache-2.0
//
// gpt as a model of language: what generate.cpp needs besides what every model has.
#ifndef TRAINER_MODELS_GPT_HPP
#define TRAINER_MODELS_GPT_HPP

#include <memory>

#include "trainer/models/model.hpp"

namespace dp::trainer {

class LanguageModel : public Model {
 public:
    // What comes after the last of the tokens, i32 [1, length] of up to a sequence: logits [1, vocabulary]
    // of the type that it was placed with. Valid until the next call of anything.
    virtual Tensor next_logits(const Tensor& tokens) = 0;
};

std::unique_ptr<LanguageModel> make_language_model(const GptShape& shape);

}  // namespace dp::trainer

#endif
