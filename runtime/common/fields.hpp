// SPDX-License-Identifier: Apache-2.0
//
// Lines of `name=value`: the plugin, the daemon and dpctl exchange small texts this way on one machine (the
// daemon's configuration, the node's plan). The plugin does not link protobuf, so these do not use it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace dp {

// One line. Control characters in the value become '?', so that it stays one.
inline std::string field_line(std::string_view name, std::string value) {
    for (char& c : value)
        if (static_cast<unsigned char>(c) < 0x20) c = '?';
    return std::string(name).append("=").append(value).append("\n");
}

// The value in a text of such lines, or "" if the name is missing.
inline std::string_view field_of(std::string_view text, std::string_view name) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
            return line.substr(name.size() + 1);
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return {};
}

}  // namespace dp
