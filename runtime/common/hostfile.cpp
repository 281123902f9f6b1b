// SPDX-License-Identifier: Apache-2.0
#include "common/hostfile.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {

std::string hostfile_of(std::string_view node_list, std::string_view tasks_per_node, uint32_t nodes) {
    const auto hosts = expand_hostlist(node_list);
    if (!hosts) return "";
    std::vector<uint32_t> slots;
    for (std::string_view part : split(tasks_per_node, ',')) {
        uint32_t times = 1;
        if (const size_t repeated = part.find("(x"); repeated != part.npos && part.ends_with(')')) {
            times = parse_number<uint32_t>(part.substr(repeated + 2, part.size() - repeated - 3)).value_or(0);
            part = part.substr(0, repeated);
        }
        const auto tasks = parse_number<uint32_t>(part);
        if (!tasks || times == 0 || times > hosts->size() - slots.size()) return "";
        slots.insert(slots.end(), times, *tasks);
    }
    if (slots.size() != hosts->size() || nodes > slots.size()) return "";
    std::string lines;
    for (uint32_t node = 0; node < nodes; ++node)
        lines += (*hosts)[node] + " slots=" + std::to_string(slots[node]) + "\n";
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
