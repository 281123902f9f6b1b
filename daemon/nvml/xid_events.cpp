// SPDX-License-Identifier: Apache-2.0
#include "nvml/xid_events.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace dp::nvml {

std::optional<std::string> kernel_log(const std::string& root) {
    const Fd file(open((root + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file) return std::nullopt;
    std::string text;
    std::array<char, 8192> record{};
    for (;;) {
        const ssize_t size = read(file.get(), record.data(), record.size());
        if (size < 0 && errno == EPIPE) continue;  // it was overwritten meanwhile
        if (size <= 0) return text;
        text.append(record.data(), static_cast<size_t>(size));
    }
}

std::vector<XidEvent> xid_events(std::string_view log) {
    constexpr std::string_view kMark = "NVRM: Xid (PCI:", kEnd = "): ";
    std::vector<XidEvent> events;
    for (const auto line : split(log, '\n')) {
        const size_t mark = line.find(kMark);
        if (mark == line.npos) continue;
        const auto rest = line.substr(mark + kMark.size());
        const size_t end = rest.find(kEnd);
        if (end == rest.npos) continue;
        const auto bus = rest.substr(0, rest.find_first_of(" )"));  // an instance of the GPU may follow
        const auto said = rest.substr(end + kEnd.size());
        const auto number = parse_number<unsigned>(said.substr(0, said.find_first_not_of("0123456789")));
        if (!number) continue;
        // "priority,number,..." comes before it (Linux' Documentation/ABI/testing/dev-kmsg).
        const auto fields = split(line.substr(0, line.find(';')), ',');
        const auto at = fields.size() > 1 ? parse_number<uint64_t>(fields[1]) : std::nullopt;
        events.push_back({printable(bus, 40), *number, at ? *at + 1 : 0,
                          printable(line.substr(line.find("Xid", mark)), 200)});
    }
    return events;
}

bool is_of_hardware(const XidEvent& event) {
    static const std::set<unsigned> kHardware = {48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143};
    return kHardware.contains(event.number);
}

}  // namespace dp::nvml
