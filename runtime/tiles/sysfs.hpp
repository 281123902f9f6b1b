// SPDX-License-Identifier: Apache-2.0
//
// The small files of /sys and /proc (and tiles.conf) as values, for finding a node's accelerators. Runs in
// slurmstepd: no exceptions, no locales, and nothing is waited for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dp {

// nullopt where there is no such file; a failure where it is longer, with `too_long` behind its path.
Try<std::optional<std::string>> read_text(const std::string& path, size_t longest = 64 << 10,
                                          std::string_view too_long = "is longer than 64 KiB");

// The same without blanks around it; "" where there is no such file.
Try<std::string> read_word(const std::string& path);

// What stands behind `key` in the line that begins with it, without blanks around it.
std::optional<std::string_view> value_behind(std::string_view text, std::string_view key);

// The names in a folder, without . and ..; none where there is no such folder.
Try<std::vector<std::string>> list_folder(const std::string& path);

// The numbers of a folder's entries that are `prefix` and a number ("card0", but not "card0-HDMI-A-1"),
// ascending; none where there is no such folder.
Try<std::vector<uint32_t>> list_numbered(const std::string& folder, std::string_view prefix);

// The last name of what a path is once its links are followed; "" where there is nothing.
std::string real_name(const std::string& path);

// "0-15,32-47" as the kernel writes lists of CPUs, ascending; nullopt where it is none.
std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text);

// The same of a file; none where it is not there or has no such list.
std::vector<uint32_t> read_cpu_list(const std::string& path);

// The folder with the machine's NUMA nodes (node0, node1, ...), below `root`; and the CPUs of one.
std::string folder_of_numa(const std::string& root);
std::vector<uint32_t> cpus_of_numa(const std::string& root, uint32_t node);

struct Surroundings {
    std::optional<uint32_t> numa;  // nullopt where the kernel does not know
    std::vector<uint32_t> cpus;
};

// Of a device on the PCI bus ("0000:17:00.0"), below `root`; nothing is known of one that is not there.
Try<Surroundings> surroundings_of(const std::string& root, const std::string& pci_address);

}  // namespace dp
