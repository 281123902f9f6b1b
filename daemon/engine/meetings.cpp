// SPDX-License-Identifier: Apache-2.0
#include "engine/meetings.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/roots.hpp"
#include "dp/dp.h"

namespace dp {
namespace {

std::string in_quotes(const std::string& group) {
    return "group \"" + printable(group, 60) + "\"";
}

}  // namespace

std::optional<uint64_t> Meetings::place_of(const Key& key, uint32_t rank) const {
    if (key.members.empty()) return rank < world_size_ ? std::optional<uint64_t>(rank) : std::nullopt;
    const auto found = std::lower_bound(key.members.begin(), key.members.end(), rank);
    if (found == key.members.end() || *found != rank) return std::nullopt;
    return static_cast<uint64_t>(found - key.members.begin());
}

std::vector<uint32_t> Meetings::missing(const Key& key, const Meeting& meeting) const {
    std::vector<uint32_t> out;
    for (size_t i = 0; i < expected(key); ++i) {
        uint32_t rank = key.members.empty() ? static_cast<uint32_t>(i) : key.members[i];
        if (!meeting.arrived.contains(rank)) out.push_back(rank);
    }
    return out;
}

Answer Meetings::fail_all(const Meeting& meeting, wire::Status status, std::string why) {
    Answer out;
    for (auto [rank, id] : meeting.arrived) out.callers.push_back({rank, id});
    out.reply.set_status(status);
    out.reply.set_error(std::move(why));
    return out;
}

Answer Meetings::cannot_meet(const Key& key, const Meeting& meeting, uint32_t ended) const {
    return fail_all(meeting, wire::ABORTED,
                    in_quotes(key.group) + " cannot meet; " + describe_(std::span(&ended, 1)));
}

// All members have arrived.
Answer Meetings::complete(const Meeting& meeting) const {
    if (auto why = meeting.facts.disagreement(hosts_of_))
        return fail_all(meeting, wire::INVALID, *why);  // the facts have names, and the ranks stand there
    Answer done = fail_all(meeting, wire::OK, "");
    for (const auto& value : meeting.values) done.reply.mutable_value()->append(value);
    return done;
}

// The error for all ranks in this message.
std::optional<Answer> Meetings::refuse(const Key& key, uint32_t roots, const wire::NodeArrive& arrive) const {
    Answer out;
    auto with = [&](wire::Status status, std::string why) {
        for (const auto& rank : arrive.ranks()) out.callers.push_back({rank.rank(), rank.id()});
        out.reply.set_status(status);
        out.reply.set_error(std::move(why));
        return out;
    };
    if (key.group.size() > kMaxGroupName)
        return with(wire::TOO_LARGE,
                    "a group's name has at most " + std::to_string(kMaxGroupName) + " bytes");
    if (!std::is_sorted(key.members.begin(), key.members.end(), std::less_equal<>()) ||
        (!key.members.empty() && key.members.back() >= world_size_))
        return with(wire::INVALID, in_quotes(key.group) + ": its members must be ascending ranks below " +
                                       std::to_string(world_size_));
    if (roots > kMaxRoots)
        return with(wire::TOO_LARGE, "a group has at most " + std::to_string(kMaxRoots) + " roots");
    if (roots > expected(key))
        return with(wire::INVALID, in_quotes(key.group) + " has " + plural(expected(key), "member") +
                                       " and cannot have " + std::to_string(roots) + " roots");
    auto open = meetings_.find(key);
    if (open != meetings_.end() && open->second.values.size() != roots)
        return with(wire::INVALID,
                    in_quotes(key.group) + ": its members disagree about how many roots it has (" +
                        std::to_string(open->second.values.size()) + " and " + std::to_string(roots) + ")");
    return std::nullopt;
}

std::optional<Answer> Meetings::admit(const Key& key, Meeting& meeting, const wire::NodeArrive::Rank& rank) {
    const Caller caller{rank.rank(), rank.id()};
    const auto place = place_of(key, rank.rank());
    if (!place)
        return answer(caller, wire::INVALID,
                      "rank " + std::to_string(rank.rank()) + " is no member of " + in_quotes(key.group));
    if (meeting.arrived.contains(rank.rank()))
        return answer(
            caller, wire::INVALID,
            "rank " + std::to_string(rank.rank()) + " has already arrived at " + in_quotes(key.group));
    const auto roots = static_cast<uint32_t>(meeting.values.size());
    if (rank.value().size() > DP_MAX_VALUE_BYTES / roots)
        return answer(caller, wire::TOO_LARGE,
                      "the values of " + plural(roots, "root") + " have at most " +
                          std::to_string(DP_MAX_VALUE_BYTES) + " bytes together");
    if (auto why = unfit(rank.facts())) return answer(caller, wire::TOO_LARGE, *why);
    meeting.arrived.emplace(rank.rank(), rank.id());
    meeting.facts.add(rank.rank(), rank.facts());
    if (auto root = root_at(*place, roots, expected(key))) meeting.values[*root] = rank.value();
    return std::nullopt;
}

std::vector<Answer> Meetings::arrive(const wire::NodeArrive& arrive, Time now) {
    const wire::Arrive& asked = arrive.meeting();
    Key key{asked.group(), {asked.members().begin(), asked.members().end()}, asked.sequence()};
    const uint32_t roots = std::max(1u, asked.roots());
    if (auto refused = refuse(key, roots, arrive)) return {std::move(*refused)};

    std::vector<Answer> answers;
    const Time deadline = now + clamped(arrive.timeout_ms());
    const Time first = now - std::min(now, clamped(arrive.waited_ms()));
    auto [it, fresh] = meetings_.try_emplace(key);
    Meeting& meeting = it->second;
    if (fresh) {
        meeting.first = first;
        meeting.deadline = deadline;
        meeting.values.resize(roots);
    }
    meeting.first = std::min(meeting.first, first);
    meeting.deadline = std::min(meeting.deadline, deadline);
    next_.add(meeting.deadline);
    for (const auto& rank : arrive.ranks())
        if (auto refused = admit(key, meeting, rank)) answers.push_back(std::move(*refused));

    if (meeting.arrived.size() == expected(key)) {
        answers.push_back(complete(meeting));
        meetings_.erase(it);
    } else if (meeting.arrived.empty()) {
        meetings_.erase(it);  // nobody of them was let in
    } else if (fresh) {
        // A member that has ended never comes; give_up handles those that end later.
        const auto ended = std::find_if(ended_.begin(), ended_.end(),
                                        [&](uint32_t rank) { return place_of(key, rank).has_value(); });
        if (ended != ended_.end()) {
            answers.push_back(cannot_meet(key, meeting, *ended));
            meetings_.erase(it);
        }
    }
    return answers;
}

std::vector<Answer> Meetings::expire(Time now) {
    std::vector<Answer> answers;
    if (!next_.due(now)) return answers;
    next_.reset();
    for (auto it = meetings_.begin(); it != meetings_.end();) {
        auto current = it++;
        const auto& [key, meeting] = *current;
        if (meeting.deadline > now) {
            next_.add(meeting.deadline);
            continue;
        }
        auto late = missing(key, meeting);
        answers.push_back(fail_all(meeting, wire::TIMEOUT,
                                   std::to_string(meeting.arrived.size()) + " of " +
                                       std::to_string(expected(key)) + " ranks met in " +
                                       in_quotes(key.group) + " within " + words(now - meeting.first) +
                                       "; missing: " + describe_(late)));
        meetings_.erase(current);
    }
    return answers;
}

std::vector<Answer> Meetings::ended(uint32_t rank) {
    ended_.insert(rank);
    return give_up(rank);
}

void Meetings::withdraw(uint32_t rank) {
    for (auto it = meetings_.begin(); it != meetings_.end();) {
        auto current = it++;
        auto& [key, meeting] = *current;
        if (meeting.arrived.erase(rank) == 0) continue;
        meeting.facts.remove(rank);
        if (meeting.arrived.empty()) meetings_.erase(current);
    }
}

std::vector<Answer> Meetings::give_up(uint32_t rank) {
    std::vector<Answer> answers;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
        auto current = it++;
        auto& [key, meeting] = *current;
        if (!place_of(key, rank)) continue;
        // Its own call needs no answer, and no meeting with it can succeed.
        meeting.arrived.erase(rank);
        if (!meeting.arrived.empty()) answers.push_back(cannot_meet(key, meeting, rank));
        meetings_.erase(current);
    }
    return answers;
}

void Meetings::report(wire::StepStatus& status, Time now, size_t most) const {
    for (const auto& [key, meeting] : meetings_) {
        if (static_cast<size_t>(status.meetings_size()) >= most) return;
        auto* told = status.add_meetings();
        told->set_group(key.group);
        told->set_sequence(key.sequence);
        told->set_arrived(static_cast<uint32_t>(meeting.arrived.size()));
        told->set_expected(static_cast<uint32_t>(expected(key)));
        told->set_waited_ms((now - meeting.first).count());
        told->set_missing(describe_(missing(key, meeting)).substr(0, 1000));
    }
}

std::vector<Answer> Meetings::end(wire::Status status, const std::string& why) {
    std::vector<Answer> answers;
    for (const auto& [key, meeting] : meetings_) answers.push_back(fail_all(meeting, status, why));
    meetings_.clear();
    return answers;
}

}  // namespace dp
