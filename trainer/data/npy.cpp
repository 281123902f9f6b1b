// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/text.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr const char* kNotRowByRow =
    "its rows do not lie one after another (fortran_order); save numpy.ascontiguousarray() of it";

constexpr std::array<std::pair<std::string_view, StoredAs>, 7> kNpyTypes{{{"<u2", StoredAs::u16},
                                                                          {"<u4", StoredAs::u32},
                                                                          {"<i4", StoredAs::i32},
                                                                          {"<i8", StoredAs::i64},
                                                                          {"<u8", StoredAs::u64},
                                                                          {"|u1", StoredAs::u8},
                                                                          {"<u1", StoredAs::u8}}};

std::uint64_t little_endian(std::string_view bytes) {
    std::uint64_t number = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
}

// The part of Python's literals that numpy writes here.
class PythonLiteral {
 public:
    explicit PythonLiteral(std::string_view text) : rest_(text) {}

    bool at_end() {
        skip_blanks();
        return rest_.empty();
    }
    bool take(std::string_view word) {
        skip_blanks();
        if (!rest_.starts_with(word)) return false;
        rest_.remove_prefix(word.size());
        return true;
    }
    // Without escapes, which no name or type has.
    std::optional<std::string_view> string() {
        skip_blanks();
        if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
        const auto end = rest_.find(rest_.front(), 1);
        if (end == std::string_view::npos) return std::nullopt;
        const auto text = rest_.substr(1, end - 1);
        rest_.remove_prefix(end + 1);
        return text;
    }
    std::optional<bool> boolean() {
        if (take("True")) return true;
        if (take("False")) return false;
        return std::nullopt;
    }
    // "()", "(3,)", "(3, 4)"
    std::optional<std::vector<std::int64_t>> tuple() {
        std::vector<std::int64_t> numbers;
        if (!take("(")) return std::nullopt;
        while (!take(")")) {
            skip_blanks();
            std::int64_t number = 0;
            const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
            if (error != std::errc() || number < 0) return std::nullopt;
            rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
            take("L");  // of Python 2
            numbers.push_back(number);
            if (!take(",") && !rest_.starts_with(")")) return std::nullopt;
        }
        return numbers;
    }

 private:
    std::string_view rest_;

    void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }
};

struct NpyDescription {
    std::optional<std::string_view> type;
    std::optional<bool> is_fortran;
    std::optional<std::vector<std::int64_t>> shape;
};

Try<NpyDescription> read_description(std::string_view text) {
    const auto unreadable = [] { return dp::fail("its header is not what numpy writes"); };
    PythonLiteral literal(text);
    NpyDescription said;
    if (!literal.take("{")) return unreadable();
    while (!literal.take("}")) {
        const auto key = literal.string();
        if (!key || !literal.take(":")) return unreadable();
        bool is_read = false;
        if (*key == "descr") {
            if (literal.take("[")) return dp::fail("its numbers are records");
            is_read = (said.type = literal.string()).has_value();
        } else if (*key == "fortran_order") {
            is_read = (said.is_fortran = literal.boolean()).has_value();
        } else if (*key == "shape") {
            is_read = (said.shape = literal.tuple()).has_value();
        }
        if (!is_read) return unreadable();
        if (literal.take(",")) continue;
        if (!literal.take("}")) return unreadable();
        break;
    }
    if (!literal.at_end() || !said.type || !said.is_fortran || !said.shape) return unreadable();
    return said;
}

}  // namespace

Try<NpyArray> read_npy_array(std::string_view beginning) {
    if (!beginning.starts_with(kNpyMagic)) return dp::fail("it is no array of numpy's");
    const auto rest = beginning.substr(kNpyMagic.size());
    const auto cut = [] { return dp::fail("cut short within the header"); };
    if (rest.size() < 2) return cut();
    const int version = static_cast<unsigned char>(rest[0]);
    if (version < 1 || version > 3 || rest[1] != 0)
        return dp::fail(fmt::format("version {}.{}, but this trainer reads 1.0 to 3.0", version,
                                    static_cast<unsigned char>(rest[1])));
    const std::size_t width = version == 1 ? 2 : 4;
    if (rest.size() < 2 + width) return cut();
    const std::uint64_t length = little_endian(rest.substr(2, width));
    const std::uint64_t bytes = kNpyMagic.size() + 2 + width + length;
    if (bytes > kLongestNpyHeader)
        return dp::fail(fmt::format("a header of {} bytes is of no array of tokens or images", bytes));
    if (bytes > beginning.size()) return cut();
    auto said = DP_TRY(read_description(rest.substr(2 + width, static_cast<std::size_t>(length))));
    return NpyArray{printable(*said.type, 40), *said.is_fortran, *std::move(said.shape),
                    static_cast<std::int64_t>(bytes)};
}

Try<NpyHeader> read_npy_header(std::string_view beginning) {
    const auto said = DP_TRY(read_npy_array(beginning));
    const auto* type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                    [&](const auto& one) { return one.first == said.type; });
    if (type == kNpyTypes.end())
        return dp::fail(fmt::format("its numbers are '{}'; tokens are little-endian integers, such as uint16",
                                    said.type));
    const auto& shape = said.shape;
    if (shape.empty() || shape.size() > 2)
        return dp::fail(fmt::format("its shape has {} dimensions; tokens have 1 or 2", shape.size()));
    if (said.is_fortran && shape.size() == 2) return dp::fail(kNotRowByRow);
    std::int64_t count = shape.front();
    if (shape.size() == 2 && __builtin_mul_overflow(shape[0], shape[1], &count))
        return dp::fail("its shape is too large");
    return NpyHeader{type->second, count, said.bytes};
}

std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape) {
    std::string header = std::string(kNpyMagic) + std::string("\1\0", 2);
    constexpr std::size_t kText = kNpyHeader - 10;  // behind what says how long it is
    header += static_cast<char>(kText);
    header += '\0';
    header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", type,
                          fmt::join(shape, ", "));
    header.resize(kNpyHeader - 1, ' ');
    return header + '\n';
}

std::int64_t NpyFile::row_bytes() const {
    std::int64_t bytes = array.type.back() - '0';
    for (std::size_t i = 1; i < array.shape.size(); ++i) bytes *= array.shape[i];
    return bytes;
}

Try<NpyFile> open_npy_array(const std::filesystem::path& file, std::string_view types) {
    auto opened = open_sized(file);
    if (!opened) return dp::fail("cannot read");
    std::string beginning(std::min<std::size_t>(kLongestNpyHeader, static_cast<std::size_t>(opened->bytes)),
                          '\0');
    DP_TRY(read_at(opened->file, 0, beginning.data(), beginning.size()));
    NpyFile made{DP_TRY(read_npy_array(beginning)), std::move(opened->file)};
    const auto& [type, is_fortran, shape, header] = made.array;
    if (type.size() != 3 || type.find(' ') != std::string::npos || types.find(type) == std::string_view::npos)
        return dp::fail(fmt::format("its numbers are '{}', and such are not taken", type));
    if (is_fortran && shape.size() > 1) return dp::fail(kNotRowByRow);
    std::int64_t bytes = type.back() - '0';  // of a row, then of all
    for (std::size_t i = 1; i <= shape.size(); ++i)
        if (__builtin_mul_overflow(bytes, i < shape.size() ? shape[i] : shape[0], &bytes))
            return dp::fail("its shape is too large");
    if (opened->bytes - header != bytes)
        return dp::fail(
            fmt::format("its shape has {} bytes, but {} follow the header", bytes, opened->bytes - header));
    return made;
}

Result<TokenRun> open_npy(const std::filesystem::path& file) {
    auto opened = DP_TRY(open_sized(file));
    const auto refuse = [&](const std::string& why) {
        return fail(Fault::usage, "{}: {}; write it again with numpy.save()", file.string(), why);
    };
    std::string beginning(std::min<std::size_t>(kLongestNpyHeader, static_cast<std::size_t>(opened.bytes)),
                          '\0');
    if (const auto read = read_at(opened.file, 0, beginning.data(), beginning.size()); !read)
        return refuse(read.error().message);
    const auto header = read_npy_header(beginning);
    if (!header) return refuse(header.error().message);
    const std::int64_t follow = opened.bytes - header->bytes;
    if (follow % bytes_of(header->type) != 0 || follow / bytes_of(header->type) != header->count)
        return refuse(fmt::format("its shape has {} numbers, but {} bytes follow", header->count, follow));
    return TokenRun{file, std::move(opened.file), header->bytes, header->type, header->count};
}

}  // namespace dp::trainer
