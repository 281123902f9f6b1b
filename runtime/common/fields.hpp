// SPDX-License-Identifier: Apache-2.0
//
// Lines of `name=value`: the plugin, the daemon and dpctl exchange small texts this way on one machine (the
// daemon's configuration, the node's plan). The plugin does not link protobuf, so these do not use it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/failure.hpp"

namespace dp {

using Fields = std::map<std::string, std::string, std::less<>>;

// Control characters in values become '?': a value is one line.
std::string write_fields(const Fields& fields);

// Fails on a line without '='.
Try<Fields> read_fields(std::string_view text);

// The value, or "" if the name is missing.
std::string field(const Fields& fields, std::string_view name);

// The same from a text of write_fields, for callers that need few fields, fast.
std::string_view field_of(std::string_view text, std::string_view name);

}  // namespace dp
