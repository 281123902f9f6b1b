// SPDX-License-Identifier: Apache-2.0
//
// The options of `trainer prepare`: options.cpp adds them to the verb, prepare.cpp does what they say.
#ifndef TRAINER_COMMANDS_PREPARE_OPTIONS_HPP
#define TRAINER_COMMANDS_PREPARE_OPTIONS_HPP

#include "trainer/prepare/prepare.hpp"

namespace CLI {
class App;
}

namespace dp::trainer {

// `options` must outlive the parsing.
void add_prepare_options(CLI::App& verb, PrepareOptions& options);

}  // namespace dp::trainer

#endif
