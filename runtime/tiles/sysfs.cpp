// SPDX-License-Identifier: Apache-2.0
#include "tiles/sysfs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"
#include "tiles/cpus.hpp"

namespace dp {
namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

Try<std::optional<std::string>> read_text(const std::string& path, size_t longest,
                                          std::string_view too_long) {
    // O_NONBLOCK: must not wait for a writer if somebody put a pipe there.
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file && errno == ENOENT) return std::nullopt;
    if (!file) return fail("cannot read " + path + ": " + errno_text(errno));
    std::string text;
    for (char part[4096];;) {
        const ssize_t size = read(file.get(), part, sizeof part);
        if (size < 0) return fail("cannot read " + path + ": " + errno_text(errno));
        if (size == 0) return text;
        text.append(part, static_cast<size_t>(size));
        if (text.size() > longest) return fail(path + " " + std::string(too_long));
    }
}

Try<std::string> read_word(const std::string& path) {
    const auto text = DP_TRY(read_text(path));
    return std::string(trimmed(text.value_or("")));
}

std::optional<std::string_view> value_behind(std::string_view text, std::string_view key) {
    for (std::string_view line : split(text, '\n'))
        if (line.starts_with(key)) return trimmed(line.substr(key.size()));
    return std::nullopt;
}

Try<std::vector<std::string>> list_folder(const std::string& path) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
    if (!folder && errno == ENOENT) return names;
    if (!folder) return fail("cannot list " + path + ": " + errno_text(errno));
    for (;;) {
        errno = 0;
        const dirent* entry = readdir(folder.get());
        if (!entry && errno != 0) return fail("cannot list " + path + ": " + errno_text(errno));
        if (!entry) return names;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
}

Try<std::vector<uint32_t>> list_numbered(const std::string& folder, std::string_view prefix) {
    const auto names = DP_TRY(list_folder(folder));
    std::vector<uint32_t> numbers;
    for (std::string_view name : names) {
        if (!name.starts_with(prefix)) continue;
        if (const auto number = parse_number<uint32_t>(name.substr(prefix.size())))
            numbers.push_back(*number);
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

std::string real_name(const std::string& path) {
    const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
    if (!real) return "";
    const std::string whole = real.get();
    return whole.substr(whole.rfind('/') + 1);
}

std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text) {
    auto cpus = parse_ranges<uint32_t>(trimmed(text), kMaxCpu);
    if (!cpus) return std::nullopt;
    std::sort(cpus->begin(), cpus->end());
    cpus->erase(std::unique(cpus->begin(), cpus->end()), cpus->end());
    return cpus;
}

std::vector<uint32_t> read_cpu_list(const std::string& path) {
    const auto text = read_word(path);
    return text ? parse_cpu_list(*text).value_or(std::vector<uint32_t>()) : std::vector<uint32_t>();
}

std::string folder_of_numa(const std::string& root) {
    return root + "/sys/devices/system/node";
}

std::vector<uint32_t> cpus_of_numa(const std::string& root, uint32_t node) {
    return read_cpu_list(folder_of_numa(root) + "/node" + std::to_string(node) + "/cpulist");
}

// numa_node is -1, and local_cpulist all CPUs, if the platform does not say (Linux's sysfs-bus-pci).
Try<TileDevice> device_at(const std::string& root, const std::string& pci_address) {
    const std::string folder = root + "/sys/bus/pci/devices/" + pci_address;
    const auto node = DP_TRY(read_word(folder + "/numa_node"));
    const auto list = DP_TRY(read_word(folder + "/local_cpulist"));
    auto cpus = parse_cpu_list(list);
    if (!cpus)
        return fail(folder + "/local_cpulist is not a list of CPUs: \"" + printable(list, 60) +
                    "\"; write the node's devices into tiles.conf");
    return TileDevice{"", "", parse_number<uint32_t>(node), std::move(*cpus)};
}

}  // namespace dp
