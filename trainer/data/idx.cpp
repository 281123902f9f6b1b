// SPDX-License-Identifier: Apache-2.0
//
// The file is untrusted: nothing is allocated before its header has been checked, and then never more than
// has been read plus one piece.
#include "trainer/data/idx.hpp"

#include <endian.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
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

constexpr const char* kCutShort = "the file is cut short";

// How many bytes were read. zlib says here what is wrong with the file; from 1.3.2 on it forgets it with the
// next read, and says nothing when the file is closed.
Try<unsigned> read_some(gzFile file, void* to, unsigned size) {
    const int got = gzread(file, to, size);
    int code = Z_OK;
    const char* text = gzerror(file, &code);
    if (code == Z_BUF_ERROR) return dp::fail(kCutShort);
    if (code == Z_ERRNO) return dp::fail(std::strerror(errno));
    if (got < 0 || code != Z_OK) return dp::fail(text);
    return static_cast<unsigned>(got);
}

// Reads exactly `size` bytes, at most kElementsAtOnce.
Try<void> read_all(gzFile file, void* to, std::size_t size) {
    if (DP_TRY(read_some(file, to, static_cast<unsigned>(size))) != size) return dp::fail(kCutShort);
    return {};
}

// The big-endian number that comes next.
Try<std::uint32_t> read_number(gzFile file) {
    std::uint32_t number = 0;
    DP_TRY(read_all(file, &number, sizeof number));
    return be32toh(number);
}

Try<Idx> parse(const std::filesystem::path& path, std::size_t dimensions) {
    auto opened = open_regular(path);
    if (!opened) return dp::fail("cannot read: " + opened.error().message);
    const File file(gzdopen(opened->get(), "rb"));
    if (!file) return dp::fail(std::strerror(ENOMEM));
    (void)opened->release();  // closed with it

    const auto magic = DP_TRY(read_number(file.get()));
    if (magic >> 8 != 8) return dp::fail("not an idx file of unsigned bytes");
    if ((magic & 0xFF) != dimensions)
        return dp::fail(fmt::format("the file has {} dimensions instead of {}", magic & 0xFF, dimensions));

    Idx idx;
    std::uint64_t elements = 1;
    for (std::size_t i = 0; i < dimensions; ++i) {
        const auto size = DP_TRY(read_number(file.get()));
        idx.dimensions.push_back(size);
        elements *= size;
        if (elements == 0 || elements > kMaxElements) return dp::fail("the header has an impossible size");
    }
    for (std::uint64_t done = 0; done < elements; done = idx.elements.size()) {
        idx.elements.resize(std::min(elements, done + kElementsAtOnce));
        DP_TRY(read_all(file.get(), idx.elements.data() + done, idx.elements.size() - done));
    }

    // Reading to the end makes zlib compare the checksum.
    std::uint8_t more = 0;
    if (DP_TRY(read_some(file.get(), &more, 1)) > 0) return dp::fail("bytes follow the last element");
    return idx;
}

}  // namespace

Result<Idx> read_idx(const std::filesystem::path& path, std::size_t dimensions) {
    auto idx = parse(path, dimensions);
    if (idx) return std::move(*idx);
    return fail(Fault::usage, "{}: {}; fetch the file again, or give another --data-dir", path.string(),
                idx.error().message);
}

}  // namespace dp::trainer
