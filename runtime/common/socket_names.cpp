// SPDX-License-Identifier: Apache-2.0
#include "common/socket_names.hpp"

#include "base/text.hpp"

namespace dp {
namespace {

bool is_plain(std::string_view text) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    return !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

std::string RanksSocketName::text() const {
    return "slurm-dp/" + step + "/" + std::to_string(user) + "/" + suffix;
}

std::optional<RanksSocketName> parse_ranks_socket_name(std::string_view name) {
    const auto parts = split(name, '/');
    if (parts.size() != 4 || parts[0] != "slurm-dp" || !is_plain(parts[1]) || !is_plain(parts[3]))
        return std::nullopt;
    const auto user = parse_number<uid_t>(parts[2]);
    if (!user) return std::nullopt;
    return RanksSocketName{std::string(parts[1]), *user, std::string(parts[3])};
}

std::string metrics_socket_name(std::string_view step) {
    return "slurm-dp-metrics/" + std::string(step);
}

}  // namespace dp
