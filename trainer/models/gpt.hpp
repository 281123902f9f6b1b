// SPDX-License-Identifier: Apache-2.0
//
// gpt as a language model: what generate.cpp needs beyond Model.
#pragma once

#include <memory>

#include "trainer/models/model.hpp"

namespace dp::trainer {

class LanguageModel : public Model {
 public:
    // Logits for the token after the last one; `tokens` is i32 [1, length], at most a sequence. Returns [1,
    // vocabulary] in the type that it was placed with. Valid until the next call of any method.
    virtual Tensor next_logits(const Tensor& tokens) = 0;
};

std::unique_ptr<LanguageModel> make_language_model(const GptShape& shape);

}  // namespace dp::trainer
