// SPDX-License-Identifier: Apache-2.0
#include "stacks/python_lines.hpp"

namespace dp::stacks {
namespace {

constexpr uint8_t byte(char c) {
    return static_cast<uint8_t>(c);
}

// Pairs: so many bytes further, so many lines further.
int64_t by_increments(std::string_view table, int64_t line, int64_t at) {
    int64_t end = 0;
    for (size_t i = 0; i + 1 < table.size(); i += 2) {
        end += byte(table[i]);
        if (end > at) break;
        line += static_cast<int8_t>(table[i + 1]);
    }
    return line;
}

// Pairs: so many bytes are so many lines further than the ones before, or (-128) on no line.
int64_t by_ranges(std::string_view table, int64_t line, int64_t at) {
    constexpr int8_t kNoLine = -128;
    int64_t end = 0;
    for (size_t i = 0; i + 1 < table.size(); i += 2) {
        const auto further = static_cast<int8_t>(table[i + 1]);
        end += byte(table[i]);
        if (further != kNoLine) line += further;
        if (at < end) return further == kNoLine ? 0 : line;
    }
    return 0;
}

// Six bits a byte, the lowest first; the next bit says that there are more.
uint64_t variable_number(std::string_view bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size() && i < 6; ++i) {
        value |= uint64_t{byte(bytes[i]) & 63U} << (6 * i);
        if (!(byte(bytes[i]) & 64)) break;
    }
    return value;
}

// Entries that begin with a byte of 1, four bits for the kind, three for the length.
int64_t by_locations(std::string_view table, int64_t line, int64_t at) {
    enum : unsigned { same_line = 10, two_lines_later = 12, no_columns = 13, whole = 14, no_line = 15 };
    constexpr int64_t kInstruction = 2;  // bytes
    int64_t end = 0;
    for (size_t i = 0; i < table.size();) {
        const unsigned first = byte(table[i++]);
        const unsigned kind = first >> 3 & 15;
        if (kind == no_columns || kind == whole) {
            const uint64_t coded = variable_number(table.substr(i));  // the lowest bit is the sign
            line += coded & 1 ? -static_cast<int64_t>(coded >> 1) : static_cast<int64_t>(coded >> 1);
        } else if (kind >= same_line && kind <= two_lines_later) {
            line += kind - same_line;
        }
        end += ((first & 7) + 1) * kInstruction;
        if (at < end) return kind == no_line ? 0 : line;
        while (i < table.size() && !(byte(table[i]) & 128)) ++i;
    }
    return 0;
}

}  // namespace

uint32_t line_of(LineTable kind, std::string_view table, uint32_t first_line, int64_t at) {
    if (at < 0) return first_line;  // it is called just now
    const int64_t line = kind == LineTable::increments ? by_increments(table, first_line, at)
                         : kind == LineTable::ranges   ? by_ranges(table, first_line, at)
                                                       : by_locations(table, first_line, at);
    return line > 0 && line <= UINT32_MAX ? static_cast<uint32_t>(line) : 0;
}

}  // namespace dp::stacks
