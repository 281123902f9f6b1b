// SPDX-License-Identifier: Apache-2.0
#include "engine/link_rounds.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "findings/tournament.hpp"

namespace dp {
namespace {

doctor::Link missing(uint32_t from, uint32_t to) {
    doctor::Link link;
    link.from = from;
    link.to = to;
    link.problem = "not measured within " + words(kRoundPatience);
    return link;
}

}  // namespace

uint32_t LinkRounds::rounds() const {
    return std::min(doctor::rounds_of(static_cast<uint32_t>(places_.size())), kMostRounds);
}

std::vector<LinkRounds::Message> LinkRounds::begin(Time now) {
    for (const Awaited& pair : std::exchange(awaited_, {}))
        if (!pair.has_measured) links_.push_back(missing(pair.from, pair.to));
    if (!began_) began_ = now;
    if (round_ >= rounds() || now >= *began_ + kAllRounds) return {};
    const auto nodes = static_cast<uint32_t>(places_.size());
    // Spread over all that there are.
    const auto round = static_cast<uint32_t>(uint64_t{round_++} * doctor::rounds_of(nodes) / rounds());
    std::vector<Message> messages;
    for (uint32_t from = 0; from < nodes; ++from) {
        const auto to = doctor::partner_in(round, from, nodes);
        if (!to || *to < from) continue;
        awaited_.push_back({from, *to});
        wire::MeasureLink serve, measure;
        serve.set_round(round_);
        serve.set_serve(true);
        measure.set_round(round_);
        measure.set_address(places_[*to].address);
        measure.set_port(places_[*to].port);
        measure.set_token(places_[*to].token);
        messages.emplace_back(places_[*to].node, std::move(serve));
        messages.emplace_back(places_[from].node, std::move(measure));
    }
    until_ = now + kRoundPatience;
    return messages;
}

// The server, too: until it has given up its partner of this round, it would send away that of the next.
void LinkRounds::note(uint32_t node, const wire::MeasuredLink& measured) {
    const auto pair = std::ranges::find_if(awaited_, [&](const Awaited& awaited) {
        return places_[awaited.from].node == node || places_[awaited.to].node == node;
    });
    if (pair == awaited_.end() || measured.round() != round_) return;
    const bool is_server = places_[pair->to].node == node;
    if (!is_server && !pair->has_measured) {
        links_.push_back(doctor::link_of(measured));
        links_.back().from = pair->from;
        links_.back().to = pair->to;
    }
    (is_server ? pair->has_served : pair->has_measured) = true;
    if (pair->has_measured && pair->has_served) awaited_.erase(pair);
}

}  // namespace dp
