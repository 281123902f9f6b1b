// SPDX-License-Identifier: Apache-2.0
//
// Tells whether a data set is another run's, without reading all of it. Kept in checkpoints.
#pragma once

#include <string>

#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// A hash of the samples' number, length and types, and of 4096 pieces spread evenly over them. Equal for
// equal samples; different for two sets that differ in more than a few places.
std::string fingerprint_of(const Split& samples);

}  // namespace dp::trainer
