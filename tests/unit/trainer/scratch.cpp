// SPDX-License-Identifier: Apache-2.0
#include "scratch.hpp"

namespace dp::trainer {

const std::filesystem::path kPackages = DP_TEST_PACKAGES;

}  // namespace dp::trainer
