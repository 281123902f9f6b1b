// SPDX-License-Identifier: Apache-2.0
//
// Where a parameter's numbers are: checkpoints have the vectors of the whole model, whatever ranks divide it when they write and read.
#pragma once

#include <string>
#include <vector>

#include "trainer/base/parameter_part.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

struct PlacedPart {
    std::string name;
    ParameterPart part;        // of the parameter, that this rank has
    std::int64_t first;        // of the part's numbers in this rank's vectors
    std::int64_t whole_first;  // of the parameter's numbers in the vectors of the whole model
};

// Of parameters that are placed.
inline std::vector<PlacedPart> placed_parts(const ParameterSet& parameters) {
    std::vector<PlacedPart> parts;
    for (const Parameter& one : parameters.all())
        parts.push_back({one.name, one.part, one.first, one.whole_first});
    return parts;
}

}  // namespace dp::trainer
