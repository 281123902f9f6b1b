// SPDX-License-Identifier: Apache-2.0
#include "common/socket_names.hpp"

#include "common/text.hpp"

namespace dp {

std::string RanksSocketName::text() const {
    return "slurm-dp/" + step + "/" + std::to_string(user) + "/" + suffix;
}

std::optional<RanksSocketName> parse_ranks_socket_name(std::string_view name) {
    const auto parts = split(name, '/');
    if (parts.size() != 4 || parts[0] != "slurm-dp" || parts[1].empty()) return std::nullopt;
    const auto user = parse_number<uid_t>(parts[2]);
    if (!user) return std::nullopt;
    return RanksSocketName{std::string(parts[1]), *user, std::string(parts[3])};
}

std::string metrics_socket_name(std::string_view step) {
    return "slurm-dp-metrics/" + std::string(step);
}

}  // namespace dp
