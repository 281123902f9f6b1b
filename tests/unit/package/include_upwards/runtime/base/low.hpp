// SPDX-License-Identifier: Apache-2.0
//
// What tests/layers must find: an include that goes up.
#include "common/high.hpp"
