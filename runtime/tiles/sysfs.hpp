// SPDX-License-Identifier: Apache-2.0
//
// Small files of /sys and /proc (and tiles.conf) as values, to detect a node's accelerators. Runs in
// slurmstepd: no exceptions, no locales, and never waits.
#pragma once

#include "tiles/inventory.hpp"

namespace dp {

// nullopt if there is no such file; fails if it is longer, with `too_long` after its path.
Try<std::optional<std::string>> read_text(const std::string& path, size_t longest = 64 << 10,
                                          std::string_view too_long = "is longer than 64 KiB");

// The same without surrounding blanks; "" if there is no such file.
Try<std::string> read_word(const std::string& path);

// The text after `key` in the line that begins with it, without surrounding blanks.
std::optional<std::string_view> value_behind(std::string_view text, std::string_view key);

// The names in a folder, without . and ..; empty if there is no such folder.
Try<std::vector<std::string>> list_folder(const std::string& path);

// The numbers of a folder's entries `prefix` and number ("card0", not "card0-HDMI-A-1"), ascending, if any.
Try<std::vector<uint32_t>> list_numbered(const std::string& folder, std::string_view prefix);

// The last name of a path after following its links; "" if there is nothing.
std::string real_name(const std::string& path);

// "0-15,32-47", a list of CPUs as the kernel writes it, ascending; nullopt if it is not one.
std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text);

// The same from a file; empty if it is missing or is no such list.
std::vector<uint32_t> read_cpu_list(const std::string& path);

// The folder of the machine's NUMA nodes (node0, node1, ...), below `root`, and the CPUs of one.
std::string folder_of_numa(const std::string& root);
std::vector<uint32_t> cpus_of_numa(const std::string& root, uint32_t node);

// A device on the PCI bus ("0000:17:00.0"), below `root`: what is near it, as far as the kernel knows it.
Try<TileDevice> device_at(const std::string& root, const std::string& pci_address);

}  // namespace dp
