// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_files.hpp"

#include <fmt/format.h>

#include <sstream>

namespace dp::trainer {
namespace {

std::string message_of(const Result<void>& done) {
    return done ? "" : done.error().message;
}

// Of the first rank that has one; "" if none has.
std::string first_problem(const std::vector<std::string>& of_all) {
    for (std::size_t rank = 0; rank < of_all.size(); ++rank)
        if (!of_all[rank].empty()) return fmt::format("rank {}: {}", rank, of_all[rank]);
    return "";
}

}  // namespace

Result<NodeFiles> exchange_files(const NodeSetting& setting, std::int64_t rank, const OwnFile& own) {
    const auto wanted = setting.unwanted.empty() ? Result<void>() : fail(Fault::world, setting.unwanted);
    auto sockets = wanted.and_then(PeerSockets::open);
    const SocketName name = sockets ? sockets->name() : SocketName{};
    const auto opened = sockets.map([](const auto&) {});
    const auto of_all = DP_TRY(
        setting.gather(fmt::format("{} {} {} {}", setting.node, name[0], name[1], message_of(opened))));

    NodeFiles found;
    std::vector<SocketName> names_of_all;
    std::vector<std::string> problems;
    for (const std::string& said : of_all) {
        std::istringstream words(said);
        words >> found.node_of_rank.emplace_back() >> names_of_all.emplace_back()[0] >>
            names_of_all.back()[1];
        std::getline(words >> std::ws, problems.emplace_back());
    }
    found.place = place_among(found.node_of_rank, rank);
    if (!found.place.is_any_shared) return found;
    std::vector<SocketName> names;
    for (const std::uint32_t local : found.place.local_ranks) names.push_back(names_of_all[local]);
    const auto me = static_cast<std::size_t>(found.place.local_rank);

    // Each step follows only if the one before it succeeded on all ranks.
    const auto send = [&]() -> Result<void> {
        const int file = DP_TRY(own.make(found.place));
        return sockets->send_fd(names, me, file);
    };
    const auto accept = [&]() -> Result<void> {
        auto files = DP_TRY(sockets->accept_fds(names.size(), me));
        return own.add_others(std::move(files), me);
    };
    found.why_not = first_problem(problems);
    if (found.why_not.empty()) found.why_not = first_problem(DP_TRY(setting.gather(message_of(send()))));
    if (found.why_not.empty()) found.why_not = first_problem(DP_TRY(setting.gather(message_of(accept()))));
    if (found.why_not.empty()) found.sockets.emplace(std::move(*sockets));
    return found;
}

}  // namespace dp::trainer
