// SPDX-License-Identifier: Apache-2.0
//
// Whether a data set is the one of another run, without reading all of it. Checkpoints keep it.
#ifndef TRAINER_DATA_FINGERPRINT_HPP
#define TRAINER_DATA_FINGERPRINT_HPP

#include <string>

#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// A hash of the samples' number, length and types, of how they are normalised, and of 4096 pieces spread
// evenly over them. The same for the same samples; one that differs between two sets that differ in more than
// a few places.
std::string fingerprint_of(const Samples& samples);

}  // namespace dp::trainer

#endif
