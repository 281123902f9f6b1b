// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's ranks talk over, by the words of their logs (NCCL 2.18 to 2.30, NCCL_DEBUG=INFO with INIT and GRAPH). Pure.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dp.pb.h"

namespace dp {

// Of one rank or of all of a node.
struct NcclTransports {
    struct Network {
        std::string name;    // "IB", "Socket", or a plugin's
        bool has_gdr;        // GPUDirect RDMA
        std::string device;  // "mlx5_0", "eth0"; of a plugin its number
        auto operator<=>(const Network&) const = default;
    };
    std::set<std::string> local;  // "P2P", "SHM"
    std::set<size_t>
        paths;  // between the GPUs of a node: places in the list of NCCL's path types, the best one first
    std::set<Network> networks;

    bool uses_tcp() const;
    bool empty() const { return local.empty() && networks.empty(); }
    void add(const NcclTransports& other);
};

NcclTransports transports_in(std::string_view log);
// `adapters`: RDMA adapters of this node that are up; told where NCCL leaves them alone in favour of TCP. `log`: where it says why.
wire::NcclTransports message_of(const NcclTransports& transports, const std::vector<std::string>& adapters,
                                const std::string& log);

}  // namespace dp
