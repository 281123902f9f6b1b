// SPDX-License-Identifier: Apache-2.0
//
// Refuses a --freeze that means nothing of a model, or all of it (models/freezing.hpp). Pure.
#pragma once

#include "trainer/base/result.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

Result<void> check_freeze(const ModelInfo& info, const ModelShape& shape);

}  // namespace dp::trainer
