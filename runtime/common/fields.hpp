// SPDX-License-Identifier: Apache-2.0
//
// Lines of `name=value`: how the plugin, the daemon and dpctl hand small texts to each other on one machine
// (the daemon's configuration, the node's plan). The plugin links no protobuf, so these do not use it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dp {

using Fields = std::map<std::string, std::string, std::less<>>;

// Control characters in values become '?': a value is one line.
std::string write_fields(const Fields& fields);

// Fails on a line without '='.
Try<Fields> read_fields(std::string_view text);

// The value, or "" where the name is missing.
std::string field(const Fields& fields, std::string_view name);

// The same of a text that write_fields made, for who needs few of them, fast.
std::string_view field_of(std::string_view text, std::string_view name);

}  // namespace dp
