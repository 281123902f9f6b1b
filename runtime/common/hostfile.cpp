// SPDX-License-Identifier: Apache-2.0
#include "common/hostfile.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {

std::string compress_counts(std::span<const uint32_t> counts) {
    std::string out;
    while (!counts.empty()) {
        const uint32_t count = counts.front();
        const auto end = std::ranges::find_if(counts, [&](uint32_t other) { return other != count; });
        const auto times = static_cast<size_t>(end - counts.begin());
        out += (out.empty() ? "" : ",") + std::to_string(count) +
               (times > 1 ? "(x" + std::to_string(times) + ")" : "");
        counts = counts.subspan(times);
    }
    return out;
}

std::string hostfile_of(std::string_view host_list, std::string_view ranks_per_host) {
    const auto hosts = expand_hostlist(host_list);
    if (!hosts) return "";
    std::vector<uint32_t> slots;
    for (std::string_view part : split(ranks_per_host, ',')) {
        uint32_t times = 1;
        if (const size_t repeated = part.find("(x"); repeated != part.npos && part.ends_with(')')) {
            times = parse_number<uint32_t>(part.substr(repeated + 2, part.size() - repeated - 3)).value_or(0);
            part = part.substr(0, repeated);
        }
        const auto tasks = parse_number<uint32_t>(part);
        if (!tasks || times == 0 || times > hosts->size() - slots.size()) return "";
        slots.insert(slots.end(), times, *tasks);
    }
    if (slots.size() != hosts->size()) return "";
    std::string lines;
    for (size_t host = 0; host < slots.size(); ++host)
        lines += (*hosts)[host] + " slots=" + std::to_string(slots[host]) + "\n";
    return lines;
}

int make_hostfile(const std::string& lines) {
    if (lines.empty()) return -1;
    Fd file(memfd_create("slurm-dp-hostfile", MFD_ALLOW_SEALING));
    if (!file || write(file.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
        return -1;
    fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return file.release();
}

std::string path_of_hostfile(int hostfile) {
    return hostfile < 0 ? "" : "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(hostfile);
}

}  // namespace dp
