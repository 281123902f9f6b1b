// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/packaged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "trainer/base/files.hpp"

namespace dp::trainer {

namespace fs = std::filesystem;

Result<void> check_packaged(std::span<const fs::path> files, const KnownDirectory& known) {
    for (const fs::path& file : files) {
        std::error_code error;
        if (!fs::equivalent(file.parent_path(), known.path, error) || error) continue;
        const auto one = std::ranges::find(known.files, file.filename().string(), &DataFile::name);
        if (one == known.files.end()) {
            if (!fs::exists(file, error)) continue;  // whoever reads it says so
            return fail(Fault::usage,
                        "{}: not a file of the package, but it would be read instead of one; "
                        "remove it",
                        file.string());
        }
        DP_TRY(check_hash(file, one->sha256, kReinstallFashionMnist));
    }
    return {};
}

}  // namespace dp::trainer
