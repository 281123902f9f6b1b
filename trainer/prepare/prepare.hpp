// SPDX-License-Identifier: Apache-2.0
//
// `trainer prepare`: makes a data set ready in a directory, for --data-dir. main.cpp calls it.
#ifndef TRAINER_PREPARE_PREPARE_HPP
#define TRAINER_PREPARE_PREPARE_HPP

#include <span>
#include <string>

#include "trainer/prepare/options.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/result.hpp"

namespace dp::trainer {

// The directory has either all files or none of them; where it was not there it is not there after an error.
// Of processes that do this at the same time for the same directory (the ranks of a node, or of all nodes on
// a shared file system) the first does it and the others wait; where it was done before, nothing is done
// again. Returns the line for a person. `sources`: a test has one of its own.
Result<std::string> prepare_data(const PrepareOptions& options, std::span<const Source> sources = kSources);

}  // namespace dp::trainer

#endif
