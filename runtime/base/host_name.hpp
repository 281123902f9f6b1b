// SPDX-License-Identifier: Apache-2.0
//
// This machine's host name.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace dp {

inline std::string host_name() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
}

}  // namespace dp
