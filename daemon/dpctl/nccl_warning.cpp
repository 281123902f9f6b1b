// SPDX-License-Identifier: Apache-2.0
//
// `dpctl nccl-warning`.
#include <sys/stat.h>

#include <fstream>

#include "base/text.hpp"
#include "common/nccl_debug.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"

namespace dp {
namespace {

// NCCL's last words are at the end of what may be a long file.
constexpr std::streamoff kEnd = 256 << 10;
// In bytes; together less than the daemon passes on.
constexpr size_t kMaxPath = 300, kMaxWarning = 450;

// "(/home/alice/nccl-7.0.2.log): [2026-11-28 14:02:11] NET/IB : ..."; "" if there is none, or the file is an earlier step's.
std::string warning_in(const std::string& path, time_t since) {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_mtime < since) return "";
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return "";
    file.seekg(std::max<std::streamoff>(0, file.tellg() - kEnd));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string warning = last_nccl_warning(text);
    return warning.empty() ? "" : "(" + printable(path, kMaxPath) + "): " + printable(warning, kMaxWarning);
}

}  // namespace

int print_nccl_warning(const NcclWarningOptions& options) {
    std::string lines;
    for (const std::string& file : options.files) lines += warning_in(file, options.since) + "\n";
    return print(lines);
}

}  // namespace dp
