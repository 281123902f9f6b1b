// SPDX-License-Identifier: Apache-2.0
//
// `dpctl nccl-warning` and `dpctl nccl-transports`.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/text.hpp"
#include "common/nccl_debug.hpp"
#include "doctor/network.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/nccl_pairs.hpp"
#include "dpctl/nccl_transports.hpp"
#include "dpctl/query.hpp"

namespace dp {
namespace {

// NCCL's last words are at the end of what may be a long file, and what it has set up is at its beginning.
constexpr std::streamoff kEnd = 256 << 10, kBeginning = 2 << 20;
// In bytes; together less than the daemon passes on.
constexpr size_t kMaxPath = 300, kMaxWarning = 450;

// At most so much of its end, or else of its beginning; "" if it is an earlier step's.
std::string text_of(const std::string& path, time_t since, std::streamoff most, bool of_end) {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_mtime < since) return "";
    std::ifstream file(path, std::ios::binary);
    if (of_end && found.st_size > most) file.seekg(found.st_size - most);
    std::string text(static_cast<size_t>(std::min<std::streamoff>(most, found.st_size)), '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (!of_end) text.resize(text.rfind('\n') + 1);  // what is behind that may be half a line
    return text;
}

// "(/home/alice/nccl-7.0.2.log): [2026-11-28 14:02:11] NET/IB : ..."; "" if there is none.
std::string warning_in(const std::string& path, time_t since) {
    const std::string warning = last_nccl_warning(text_of(path, since, kEnd, true));
    return warning.empty() ? "" : "(" + printable(path, kMaxPath) + "): " + printable(warning, kMaxWarning);
}

std::vector<std::string> rdma_adapters() {
    std::vector<std::string> adapters;
    for (const auto& port : doctor::read_rdma_ports(""))
        if (port.state == "ACTIVE") {
            std::string adapter = port.name.substr(0, port.name.find(' '));
            if (adapters.empty() || adapters.back() != adapter) adapters.push_back(std::move(adapter));
        }
    return adapters;
}

}  // namespace

int print_nccl_warning(const NcclFilesOptions& options) {
    std::string lines;
    for (const std::string& file : options.files) lines += warning_in(file, options.since) + "\n";
    return print(lines);
}

int print_nccl_transports(const NcclFilesOptions& options) {
    NcclTransports all;
    NcclPairs pairs;
    std::string log;
    for (const std::string& file : options.files) {
        const std::string text = text_of(file, options.since, kBeginning, false);
        const NcclTransports found = transports_in(text);
        all.add(found);
        pairs.add(pairs_in(text));
        if (found.uses_tcp()) log = file;
    }
    if (all.empty()) return 0;
    wire::NcclTransports message = message_of(all, rdma_adapters(), log);
    pairs.write(message);
    return print(message.SerializeAsString());
}

}  // namespace dp
