// SPDX-License-Identifier: Apache-2.0
#include "common/fields.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp {

std::string write_fields(const Fields& fields) {
    std::string out;
    for (const auto& [name, value] : fields) {
        out += name;
        out += '=';
        for (char c : value) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        out += '\n';
    }
    return out;
}

Try<Fields> read_fields(std::string_view text) {
    Fields fields;
    for (std::string_view line : split(text, '\n')) {
        if (line.empty()) continue;
        size_t equals = line.find('=');
        if (equals == std::string_view::npos)
            return fail("a line without '=': \"" + printable(line, 40) + "\"");
        fields.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
    return fields;
}

std::string field(const Fields& fields, std::string_view name) {
    auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
}

std::string_view field_of(std::string_view text, std::string_view name) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
            return line.substr(name.size() + 1);
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return {};
}

}  // namespace dp
