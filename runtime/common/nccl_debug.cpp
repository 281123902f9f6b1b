// SPDX-License-Identifier: Apache-2.0
#include "common/nccl_debug.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/slurm_patterns.hpp"

namespace dp {

std::string nccl_debug_file(const NcclDebug& wish, const RankOfStep& rank) {
    const std::string pattern = wish.file == "on" ? "nccl-%j.%s.%t.log" : wish.file;
    if (!pattern.starts_with('/') && rank.folder.empty()) return "";
    std::string out = pattern.starts_with('/') ? "" : rank.folder + "/";
    out += fill_in(pattern, {{'j', std::to_string(rank.job_id)},
                             {'s', std::to_string(rank.step_id)},
                             {'t', std::to_string(rank.rank)},
                             {'N', rank.node}});
    const bool has_rank = fill_in(pattern, {{'t', "\n"}}).find('\n') != std::string::npos;
    if (!has_rank) out += "." + std::to_string(rank.rank);
    // NCCL truncates its file.
    if (rank.generation > 0) out += ".generation" + std::to_string(rank.generation);
    return out;
}

std::string for_nccl(const std::string& file) {
    std::string out;
    for (const char c : file) out.append(c == '%' ? 2 : 1, c);
    return out;
}

std::string last_nccl_warning(std::string_view text) {
    constexpr std::string_view kMark = "NCCL WARN ";
    const size_t at = text.rfind(kMark);
    if (at == text.npos) return "";
    const std::string_view rest = text.substr(at + kMark.size());
    // "[2026-11-28 04:00:01] node01:7:9 [0] transport/net_ib.cc:90 NCCL WARN ..."
    const std::string_view line = text.substr(text.rfind('\n', at) + 1);
    const size_t stamp = line.starts_with('[') ? line.find(']') : line.npos;
    const std::string when = stamp < at ? std::string(line.substr(0, stamp + 1)) + " " : "";
    return when + std::string(rest.substr(0, rest.find('\n')));
}

std::string working_directory() {
    std::array<char, 4096> folder{};
    return getcwd(folder.data(), folder.size()) ? folder.data() : "";
}

std::string usable_nccl_debug_file(const NcclDebug& wish, const RankOfStep& rank,
                                   std::vector<std::string>& warnings) {
    const std::string file = nccl_debug_file(wish, rank);
    const std::string folder = file.substr(0, file.rfind('/') + 1);
    if (!file.empty() && access(folder.c_str(), W_OK | X_OK) == 0) return file;
    warnings.push_back(
        "NCCL writes no files on " + rank.node + " (--dp-nccl-debug): " +
        (file.empty() ? "the working directory is gone" : folder + ": " + std::strerror(errno)));
    return "";
}

}  // namespace dp
