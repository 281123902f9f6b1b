// SPDX-License-Identifier: Apache-2.0
#include "dpctl/nccl_transports.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/text.hpp"

namespace dp {
namespace {

// In bytes. A node may have 32 adapters.
constexpr size_t kMaxName = 40, kMaxWords = 400;
constexpr size_t kMostAdapters = 4;  // named

struct Path {
    std::string_view name;  // graph/topo.cc's
    std::string_view in_words;
};
constexpr auto kPaths = std::to_array<Path>({
    {"NVL", "NVLink"},
    {"NVB", "NVLink through another GPU"},
    {"C2C", "NVLink-C2C"},
    {"PIX", "one PCIe switch"},
    {"PXB", "PCIe switches"},
    {"P2C", "NVLink-C2C and PCIe"},
    {"PXN", "another GPU's adapter"},
    {"PHB", "PCIe and a CPU"},
    {"SYS", "PCIe and two CPUs"},
});

std::optional<std::string_view> behind(std::string_view line, std::string_view mark) {
    const size_t at = line.find(mark);
    return at == line.npos ? std::nullopt : std::optional(line.substr(at + mark.size()));
}

std::string_view until(std::string_view text, char end) {
    return text.substr(0, text.find(end));
}

// "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "NET/Socket : Using [0]eth0:10.0.0.1<0>", and
// "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=...".
using Devices = std::map<std::pair<std::string, std::string>, std::string>;

void note_devices(std::string_view line, Devices& devices) {
    const auto network = behind(line, "NET/");
    if (!network) return;
    const std::string name(until(*network, ' '));
    if (const auto made = behind(line, "Made virtual device ["))
        if (const auto device = behind(*made, "] name=")) {
            devices[{name, std::string(until(*made, ']'))}] = until(*device, ' ');
            return;
        }
    const auto used = behind(line, " : Using ");
    if (!used) return;
    for (const std::string_view word : split(until(*used, ';'), ' ')) {
        const size_t end = word.find(']');
        if (!word.starts_with('[') || end == word.npos || end + 1 == word.size()) continue;
        devices[{name, std::string(word.substr(1, end - 1))}] = until(word.substr(end + 1), ':');
    }
}

// "Channel 00/0 : 3[1] -> 1[1] [send] via NET/IB/2/GDRDMA", "... via NET/AWS Libfabric/0(2)/Shared", "... via P2P/CUMEM/read",
// "... via SHM/direct/direct".
void note_channel(std::string_view via, const Devices& devices, NcclTransports& found) {
    const auto parts = split(via, '/');
    if (parts.empty()) return;
    if (parts[0] != "NET") {
        // Between nodes of one NVLink domain.
        const bool is_multi_node = parts.size() > 1 && parts[1].starts_with("MNNVL");
        if (is_multi_node)
            found.networks.insert({"NVLink", false, "MNNVL"});
        else if (parts[0] == "P2P" || parts[0] == "SHM")
            found.local.emplace(parts[0]);
        return;
    }
    if (parts.size() < 3) return;
    std::string number;
    for (const char c : parts[2]) {
        if (c < '0' || c > '9') break;
        number += c;
    }
    const std::string name(parts[1]);
    const auto device = devices.find({name, number});
    found.networks.insert({printable(name, kMaxName), via.find("/GDRDMA") != via.npos,
                           printable(device == devices.end() ? number : device->second, kMaxName)});
}

}  // namespace

void NcclTransports::add(const NcclTransports& other) {
    local.insert(other.local.begin(), other.local.end());
    paths.insert(other.paths.begin(), other.paths.end());
    networks.insert(other.networks.begin(), other.networks.end());
}

bool NcclTransports::uses_tcp() const {
    return std::ranges::any_of(networks, [](const Network& one) { return one.name == "Socket"; });
}

NcclTransports transports_in(std::string_view log) {
    NcclTransports found;
    Devices devices;
    for (const std::string_view line : split(log, '\n')) {
        if (line.find("NCCL INFO ") == line.npos) continue;
        const auto channel = behind(line, " Channel ");
        if (const auto via = channel ? behind(*channel, " via ") : std::nullopt) {
            note_channel(*via, devices, found);
        } else if (const auto ring = behind(line, " Pattern 4, ")) {
            // "... type NVL/PIX, sameChannels 1": among the GPUs of a node, and to its adapters.
            const auto type = behind(*ring, " type ");
            const auto path = std::ranges::find(kPaths, until(type.value_or(""), '/'), &Path::name);
            if (path != kPaths.end()) found.paths.insert(static_cast<size_t>(path - kPaths.begin()));
        } else {
            note_devices(line, devices);
        }
    }
    return found;
}

wire::NcclTransports message_of(const NcclTransports& transports, const std::vector<std::string>& adapters,
                                const std::string& log) {
    wire::NcclTransports message;
    std::string local = join(transports.local, " and ");
    // The slowest: it sets the pace.
    if (transports.local.contains("P2P") && !transports.paths.empty())
        local += " over " + std::string(kPaths[*transports.paths.rbegin()].in_words);
    message.set_local(local);
    std::string networks;
    for (auto one = transports.networks.begin(); one != transports.networks.end(); ++one) {
        const auto alike = [&](const auto& other) {
            return other.name == one->name && other.has_gdr == one->has_gdr;
        };
        const bool begins = one == transports.networks.begin() || !alike(*std::prev(one));
        const bool ends = std::next(one) == transports.networks.end() || !alike(*std::next(one));
        networks += !begins ? ", " : (networks.empty() ? "" : " and ") + one->name + " ";
        networks += one->device + (ends && one->has_gdr ? " with GPUDirect RDMA" : "");
    }
    message.set_network(printable(networks, kMaxWords));
    if (!transports.uses_tcp() || adapters.empty()) return message;
    std::vector<std::string> named(adapters.begin(), adapters.begin() + static_cast<ptrdiff_t>(std::min(
                                                                            adapters.size(), kMostAdapters)));
    if (adapters.size() > kMostAdapters) named.emplace_back("...");
    message.set_fell_back(printable(
        join(named, ", ") + (adapters.size() == 1 ? " is" : " are") + " up, but NCCL uses TCP", kMaxWords));
    message.set_log(printable(log, kMaxWords));
    return message;
}

}  // namespace dp
