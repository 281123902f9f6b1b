// SPDX-License-Identifier: Apache-2.0
//
// idx files through zlib: see idx.hpp. The file is untrusted: nothing is allocated before its header has been
// checked, and then never more than has been read plus one piece.
#include "trainer/data/idx.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

// No data set that this trainer knows is larger; a header that says more is damaged.
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 31;
// Bytes for which memory is taken before they are known to be there: a damaged header may claim 2 GiB.
constexpr std::uint64_t kElementsAtOnce = std::uint64_t{1} << 26;

struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
};
using File = std::unique_ptr<gzFile_s, Close>;

std::string why(gzFile file) {
    int code = Z_OK;
    const char* text = gzerror(file, &code);
    if (code == Z_ERRNO) return std::strerror(errno);
    if (code == Z_BUF_ERROR) return "the file is cut short";
    return code == Z_OK ? "the file is cut short" : text;
}

// Reads exactly `size` bytes, or says why not.
std::optional<std::string> read_all(gzFile file, std::uint8_t* to, std::uint64_t size) {
    while (size > 0) {
        const auto part = static_cast<unsigned>(std::min<std::uint64_t>(size, 1u << 30));
        const int got = gzread(file, to, part);
        if (got <= 0) return why(file);
        to += got;
        size -= static_cast<std::uint64_t>(got);
    }
    return std::nullopt;
}

std::uint32_t big_endian(const std::uint8_t* bytes) {
    return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) |
           (std::uint32_t{bytes[2]} << 8) | bytes[3];
}

}  // namespace

Result<Idx> read_idx(const std::filesystem::path& path, std::size_t dimensions) {
    auto damaged = [&](const std::string& reason) {
        return fail(Fault::usage, fmt::format("{}: {}; fetch the file again, or give another --data-dir",
                                              path.string(), reason));
    };
    auto opened = open_regular(path);
    if (!opened) return damaged("cannot read: " + opened.error().message);
    const File file(gzdopen(opened->get(), "rb"));
    if (!file) return damaged(std::strerror(ENOMEM));
    (void)opened->release();  // closed with it

    std::array<std::uint8_t, 4> magic{};
    if (auto reason = read_all(file.get(), magic.data(), magic.size())) return damaged(*reason);
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != 8)
        return damaged("this is no idx file of unsigned bytes");
    if (magic[3] != dimensions) {
        return damaged(fmt::format("the file has {} dimensions where {} are expected", magic[3], dimensions));
    }

    Idx idx;
    std::uint64_t elements = 1;
    for (std::size_t i = 0; i < dimensions; ++i) {
        std::array<std::uint8_t, 4> size{};
        if (auto reason = read_all(file.get(), size.data(), size.size())) return damaged(*reason);
        idx.dimensions.push_back(big_endian(size.data()));
        elements *= idx.dimensions.back();
        if (elements == 0 || elements > kMaxElements) return damaged("the header names an impossible size");
    }
    for (std::uint64_t read = 0; read < elements; read = idx.elements.size()) {
        idx.elements.resize(std::min(elements, read + kElementsAtOnce));
        if (auto reason = read_all(file.get(), idx.elements.data() + read, idx.elements.size() - read))
            return damaged(*reason);
    }

    // Reading to the end makes zlib compare the checksum.
    std::uint8_t more = 0;
    const int rest = gzread(file.get(), &more, 1);
    if (rest > 0) return damaged("there are bytes after the last element");
    int code = Z_OK;
    gzerror(file.get(), &code);  // a file cut short within the checksum reads as an end, with Z_BUF_ERROR
    if (rest < 0 || code != Z_OK) return damaged(why(file.get()));
    return idx;
}

}  // namespace dp::trainer
