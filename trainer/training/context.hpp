// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a training share and do not own. training.cpp makes it, and it outlives them.
#pragma once

#include "trainer/base/ranks.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/observer.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

struct TrainingContext {
    const ModelInfo& info;
    Model& model;  // has been placed
    const Dataset& data;
    const Settings& settings;
    const Schedule& schedule;
    Device& device;
    Ranks ranks;
    Observer& observer;
    bool keeps_state = false;  // at the end of each step, for recovery (survival.hpp)
};

}  // namespace dp::trainer
