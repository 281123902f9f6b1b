// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's XID events: what the driver has seen go wrong on a GPU, as the kernel's log has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dp::nvml {

struct XidEvent {
    std::string bus;      // the GPU's PCI address as the log writes it: "0000:17:00"
    unsigned number = 0;  // of NVIDIA's "XID Errors"
    uint64_t at = 0;      // the log's number of the line, from 1; 0 where it has none
    std::string line;     // "Xid (PCI:0000:17:00): 79, ..."
    bool operator==(const XidEvent&) const = default;
};

// The whole of the kernel's log (/dev/kmsg below `root`); nullopt: this user may not read it.
std::optional<std::string> kernel_log(const std::string& root = "");

// Its lines about XID events, in their order. Pure.
std::vector<XidEvent> xid_events(std::string_view log);

// Whether the GPU, its memory or its links have failed. Other events are mostly a program's own mistake (13, 31).
bool is_of_hardware(const XidEvent& event);

}  // namespace dp::nvml
