// SPDX-License-Identifier: Apache-2.0
//
// Which parameters keep their values in a training (--freeze), by the names that `trainer info` and checkpoints have. Pure.
// commands/freezing.cpp refuses what means none or all.
#pragma once

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "trainer/models/model.hpp"

namespace dp::trainer {

// `pattern`: as file names in a shell, where * stands for dots, too. It means what has this name, or is under it: h.0 means all of
// the layer.
inline bool is_named_like(const std::string& name, const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
           ::fnmatch((pattern + ".*").c_str(), name.c_str(), 0) == 0;
}

// `patterns`: ModelShape::freeze.
inline bool is_frozen_by(const std::string& name, const std::vector<std::string>& patterns) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return is_named_like(name, pattern); });
}

// Numbers that are learnt, of the whole model.
inline std::int64_t trained_count(const ParameterSet& parameters) {
    std::int64_t count = 0;
    for (const Parameter& one : parameters.all()) count += one.is_frozen ? 0 : elements_of(one.part.whole);
    return count;
}

// The model, of which what ModelShape::freeze means is frozen.
inline std::unique_ptr<Model> make_model(const ModelInfo& info, const ModelShape& shape) {
    ModelShape known = shape;
    known.gpt.freeze = shape.freeze;
    auto model = info.make(known);
    model->parameters().freeze([&](const Parameter& one) { return is_frozen_by(one.name, shape.freeze); });
    return model;
}

}  // namespace dp::trainer
