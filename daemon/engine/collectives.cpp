// SPDX-License-Identifier: Apache-2.0
#include "engine/collectives.hpp"

#include <algorithm>

#include "common/roots.hpp"

namespace dp {

std::optional<uint64_t> Collectives::place_of(const Key& key, uint32_t rank) const {
    if (key.members.empty()) return rank < world_size_ ? std::optional<uint64_t>(rank) : std::nullopt;
    const auto found = std::lower_bound(key.members.begin(), key.members.end(), rank);
    if (found == key.members.end() || *found != rank) return std::nullopt;
    return static_cast<uint64_t>(found - key.members.begin());
}

std::vector<uint32_t> Collectives::missing(const Key& key, const Collective& collective) const {
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < expected(key); ++i)
        if (uint32_t rank = key.members.empty() ? i : key.members[i]; !collective.arrived.contains(rank))
            out.push_back(rank);
    return out;
}

Answer Collectives::answer_all(const Collective& collective, wire::Status status, std::string why) {
    Answer out{{}, reply_with(status, std::move(why))};
    for (auto [rank, id] : collective.arrived) out.callers.push_back({rank, id});
    return out;
}

Answer Collectives::cannot_meet(const Key& key, const Collective& collective, uint32_t ended) const {
    return answer_all(collective, wire::ABORTED,
                      key.in_words() + " cannot complete; " + members_.describe(std::span(&ended, 1)));
}

// All members have arrived.
Answer Collectives::complete(const Collective& collective) const {
    if (auto why = collective.facts.disagreement([this](auto ranks) { return members_.hosts_of(ranks); }))
        return answer_all(collective, wire::INVALID, *why);
    Answer done = answer_all(collective, wire::OK, "");
    for (const auto& value : collective.values) done.reply.mutable_value()->append(value);
    return done;
}

// The error for all ranks in this message.
std::optional<Answer> Collectives::refuse(const Key& key, uint32_t roots,
                                          const wire::NodeArrive& arrive) const {
    const auto with = [&](wire::Status status, std::string why) {
        Answer out{{}, reply_with(status, std::move(why))};
        for (const auto& rank : arrive.ranks()) out.callers.push_back({rank.rank(), rank.id()});
        return out;
    };
    if (key.group.size() > kMaxGroupName)
        return with(wire::TOO_LARGE,
                    "a group's name has at most " + std::to_string(kMaxGroupName) + " bytes");
    if (!std::is_sorted(key.members.begin(), key.members.end(), std::less_equal<>()) ||
        (!key.members.empty() && key.members.back() >= world_size_))
        return with(wire::INVALID, key.in_words() + ": its members must be ascending ranks below " +
                                       std::to_string(world_size_));
    if (roots > kMaxRoots)
        return with(wire::TOO_LARGE, "a group has at most " + std::to_string(kMaxRoots) + " roots");
    if (roots > expected(key))
        return with(wire::INVALID, key.in_words() + " has " + plural(expected(key), "member") +
                                       " and cannot have " + std::to_string(roots) + " roots");
    const auto past = std::ranges::find_if(given_up_, [&](const auto& one) {
        return one.first.is_same_group(key) && key.sequence <= one.first.sequence;
    });
    if (past != given_up_.end())
        return with(wire::TIMEOUT, "too late, the others have given up: " + past->second);
    auto open = collectives_.find(key);
    if (open != collectives_.end() && open->second.values.size() != roots)
        return with(wire::INVALID, key.in_words() + ": its members disagree about how many roots it has (" +
                                       std::to_string(open->second.values.size()) + " and " +
                                       std::to_string(roots) + ")");
    return std::nullopt;
}

std::optional<Answer> Collectives::admit(const Key& key, Collective& collective,
                                         const wire::NodeArrive::Rank& rank) {
    const auto refused = [&](wire::Status status, std::string why) {
        return answer({rank.rank(), rank.id()}, status, std::move(why));
    };
    const auto invalid = [&](const char* why) {
        return refused(wire::INVALID, "rank " + std::to_string(rank.rank()) + why + key.in_words());
    };
    const auto place = place_of(key, rank.rank());
    if (!place) return invalid(" is not a member of ");
    if (collective.arrived.contains(rank.rank())) return invalid(" has already arrived at ");
    const auto roots = static_cast<uint32_t>(collective.values.size());
    if (rank.value().size() > DP_MAX_VALUE_BYTES / roots)
        return refused(wire::TOO_LARGE, "the values of " + plural(roots, "root") + " have at most " +
                                            std::to_string(DP_MAX_VALUE_BYTES) + " bytes together");
    if (auto why = unfit(rank.facts())) return refused(wire::TOO_LARGE, *why);
    collective.arrived.emplace(rank.rank(), rank.id());
    collective.facts.add(rank.rank(), rank.facts());
    if (auto root = root_at(*place, roots, expected(key))) collective.values[*root] = rank.value();
    return std::nullopt;
}

std::vector<Answer> Collectives::arrive(const wire::NodeArrive& arrive, Time now) {
    const wire::Arrive& asked = arrive.meeting();
    Key key{asked.group(), {asked.members().begin(), asked.members().end()}, asked.sequence()};
    const uint32_t roots = std::max(1u, asked.roots());
    if (auto refused = refuse(key, roots, arrive)) return {std::move(*refused)};

    std::vector<Answer> answers;
    const Time deadline = now + clamped(arrive.timeout_ms());
    const Time first = now - std::min(now, clamped(arrive.waited_ms()));
    auto [it, fresh] = collectives_.try_emplace(key);
    Collective& collective = it->second;
    if (fresh) {
        collective.first = first;
        collective.deadline = deadline;
        collective.values.resize(roots);
    }
    collective.first = std::min(collective.first, first);
    collective.deadline = std::min(collective.deadline, deadline);
    next_ = earlier(next_, collective.deadline);
    for (const auto& rank : arrive.ranks())
        if (auto refused = admit(key, collective, rank)) answers.push_back(std::move(*refused));

    if (collective.arrived.size() == expected(key)) {
        answers.push_back(complete(collective));
        collectives_.erase(it);
    } else if (collective.arrived.empty()) {
        collectives_.erase(it);  // all of them were refused
    } else if (fresh) {
        // A member that has ended never comes; give_up handles those that end later.
        const auto ended = std::find_if(ended_.begin(), ended_.end(),
                                        [&](uint32_t rank) { return place_of(key, rank).has_value(); });
        if (ended != ended_.end()) {
            answers.push_back(cannot_meet(key, collective, *ended));
            collectives_.erase(it);
        }
    }
    return answers;
}

std::vector<Answer> Collectives::expire(Time now) {
    std::vector<Answer> answers;
    if (!next_ || now < *next_) return answers;
    next_.reset();
    std::erase_if(collectives_, [&](const auto& open) {
        const Key& key = open.first;  // clang 14 captures no structured binding
        const Collective& collective = open.second;
        if (collective.deadline > now) {
            next_ = earlier(next_, collective.deadline);
            return false;
        }
        const std::string why = std::to_string(collective.arrived.size()) + " of " +
                                std::to_string(expected(key)) + " ranks arrived in " + key.in_words() +
                                " within " + words(now - collective.first) +
                                "; missing: " + members_.describe(missing(key, collective));
        std::erase_if(given_up_, [&](const auto& one) { return one.first.is_same_group(key); });
        if (given_up_.size() < kMaxGivenUp) given_up_[key] = why;
        answers.push_back(answer_all(collective, wire::TIMEOUT, why));
        return true;
    });
    return answers;
}

std::vector<Answer> Collectives::ended(uint32_t rank) {
    ended_.insert(rank);
    return give_up(rank);
}

void Collectives::withdraw(uint32_t rank) {
    for (auto& [key, collective] : collectives_)
        if (collective.arrived.erase(rank) > 0) collective.facts.remove(rank);
    std::erase_if(collectives_, [](const auto& open) { return open.second.arrived.empty(); });
    // Its next process counts anew.
    std::erase_if(given_up_, [&](const auto& one) { return place_of(one.first, rank).has_value(); });
}

std::vector<Answer> Collectives::give_up(uint32_t rank) {
    std::vector<Answer> answers;
    for (auto& [key, collective] : collectives_) {
        if (!place_of(key, rank)) continue;
        // Its own call needs no answer, and no collective with it can succeed.
        collective.arrived.erase(rank);
        if (!collective.arrived.empty()) answers.push_back(cannot_meet(key, collective, rank));
    }
    std::erase_if(collectives_, [&](const auto& open) { return place_of(open.first, rank).has_value(); });
    return answers;
}

void Collectives::report(wire::StepStatus& status, Time now, size_t most) const {
    for (const auto& [key, collective] : collectives_) {
        if (static_cast<size_t>(status.meetings_size()) >= most) return;
        auto* told = status.add_meetings();
        told->set_group(key.group);
        told->set_sequence(key.sequence);
        told->set_arrived(static_cast<uint32_t>(collective.arrived.size()));
        told->set_expected(static_cast<uint32_t>(expected(key)));
        told->set_waited_ms((now - collective.first).count());
        told->set_missing(members_.describe(missing(key, collective)).substr(0, 1000));
    }
}

std::vector<Answer> Collectives::end(wire::Status status, const std::string& why) {
    std::vector<Answer> answers;
    for (const auto& [key, collective] : collectives_) answers.push_back(answer_all(collective, status, why));
    collectives_.clear();
    return answers;
}

}  // namespace dp
