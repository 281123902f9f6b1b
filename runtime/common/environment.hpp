// SPDX-License-Identifier: Apache-2.0
//
// The environment as a function, so that code that reads it can be tested with another one.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace dp {

using GetVariable = std::function<std::optional<std::string>(const char*)>;

// This process's environment.
inline std::optional<std::string> get_environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace dp
