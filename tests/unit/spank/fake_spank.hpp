// SPDX-License-Identifier: Apache-2.0
//
// The numbers that the tests' spank_get_item tells (environment_test.cpp).
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <cstdint>
#include <map>
#include <vector>

namespace dp::plugin {

// An item that is missing is not told; so is the rank of a local task.
struct SpankItems {
    std::map<spank_item_t, uint32_t> numbers;
    std::vector<uint32_t> ranks;
};
inline SpankItems spank_items;

}  // namespace dp::plugin
