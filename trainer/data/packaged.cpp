// SPDX-License-Identifier: Apache-2.0
//
// Files whose hash is known: see packaged.hpp.
#include "trainer/data/packaged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "trainer/data/files.hpp"

namespace dp::trainer {

namespace fs = std::filesystem;

Result<void> check_hash(const fs::path& file, std::string_view expected, std::string_view how) {
    std::error_code ignored;
    if (!fs::exists(file, ignored))
        return fail(Fault::usage, fmt::format("{}: not there; fetch it with `{}`", file.string(), how));
    const auto found = sha256_of_file(file);
    if (!found) return tl::make_unexpected(found.error());
    if (*found == expected) return {};
    // What to do comes first: where ranks compare what they found, the end of a long line is cut.
    return fail(
        Fault::usage,
        fmt::format("{}: not the published file; fetch it again with `{}` (its SHA-256 is {}, not {})",
                    file.string(), how, *found, expected));
}

Result<void> check_packaged(std::span<const fs::path> files, const KnownDirectory& known) {
    for (const fs::path& file : files) {
        std::error_code error;
        if (!fs::equivalent(file.parent_path(), known.path, error) || error) continue;
        const auto one = std::find_if(known.files.begin(), known.files.end(),
                                      [&](const DataFile& each) { return each.name == file.filename(); });
        if (one == known.files.end()) continue;
        if (auto sound = check_hash(file, one->sha256, kReinstallFashionMnist); !sound) return sound;
    }
    return {};
}

}  // namespace dp::trainer
