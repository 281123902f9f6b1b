// SPDX-License-Identifier: Apache-2.0
#include "engine/meetings.hpp"

#include <algorithm>

#include "common/text.hpp"
#include "dp/dp.h"

namespace dp {
namespace {

std::string in_quotes(const std::string& group) {
    return "group \"" + printable(group, 60) + "\"";
}

}  // namespace

bool Meetings::is_member(const Key& key, uint32_t rank) const {
    return key.members.empty() ? rank < world_size_
                               : std::binary_search(key.members.begin(), key.members.end(), rank);
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

std::vector<Answer> Meetings::arrive(Caller caller, const wire::Arrive& arrive, Time now, Time timeout) {
    Key key{arrive.group(), {arrive.members().begin(), arrive.members().end()}, arrive.sequence()};
    if (key.group.size() > kMaxGroupName)
        return {answer(caller, wire::TOO_LARGE,
                       "a group's name has at most " + std::to_string(kMaxGroupName) + " bytes")};
    if (!std::is_sorted(key.members.begin(), key.members.end(), std::less_equal<>()) ||
        (!key.members.empty() && key.members.back() >= world_size_))
        return {answer(caller, wire::INVALID,
                       in_quotes(key.group) + ": its members must be ascending ranks below " +
                           std::to_string(world_size_))};
    if (!is_member(key, caller.rank))
        return {answer(caller, wire::INVALID,
                       "rank " + std::to_string(caller.rank) + " is no member of " + in_quotes(key.group))};
    if (arrive.value().size() > DP_MAX_VALUE_BYTES)
        return {answer(caller, wire::TOO_LARGE,
                       "a value has at most " + std::to_string(DP_MAX_VALUE_BYTES) + " bytes")};

    auto [it, fresh] = meetings_.try_emplace(key);
    Meeting& meeting = it->second;
    if (fresh) {
        meeting.first = now;
        meeting.deadline = now + timeout;
    }
    if (!meeting.arrived.emplace(caller.rank, caller.id).second)
        return {answer(
            caller, wire::INVALID,
            "rank " + std::to_string(caller.rank) + " has already arrived at " + in_quotes(key.group))};
    meeting.deadline = std::min(meeting.deadline, now + timeout);
    const uint32_t root = key.members.empty() ? 0 : key.members.front();
    if (caller.rank == root) meeting.value = arrive.value();

    if (meeting.arrived.size() < expected(key)) return {};
    Answer done = fail_all(meeting, wire::OK, "");
    done.reply.set_value(meeting.value);
    meetings_.erase(it);
    return {std::move(done)};
}

std::vector<Answer> Meetings::expire(Time now) {
    std::vector<Answer> answers;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
        auto current = it++;
        const auto& [key, meeting] = *current;
        if (meeting.deadline > now) continue;
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

std::optional<Time> Meetings::next_deadline() const {
    std::optional<Time> next;
    for (const auto& [key, meeting] : meetings_) next = earlier(next, meeting.deadline);
    return next;
}

std::vector<Answer> Meetings::give_up(uint32_t rank) {
    std::vector<Answer> answers;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
        auto current = it++;
        auto& [key, meeting] = *current;
        if (!is_member(key, rank)) continue;
        // Its own call needs no answer, and no meeting with it can end well.
        meeting.arrived.erase(rank);
        if (!meeting.arrived.empty())
            answers.push_back(
                fail_all(meeting, wire::ABORTED,
                         in_quotes(key.group) + " cannot meet: " + describe_(std::span(&rank, 1))));
        meetings_.erase(current);
    }
    return answers;
}

std::vector<Answer> Meetings::end(wire::Status status, const std::string& why) {
    std::vector<Answer> answers;
    for (const auto& [key, meeting] : meetings_) answers.push_back(fail_all(meeting, status, why));
    meetings_.clear();
    return answers;
}

}  // namespace dp
