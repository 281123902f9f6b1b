// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_facts.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {
namespace {

constexpr size_t kValuesShown = 4;

std::string who(const std::vector<uint32_t>& ranks, const HostsOf& hosts_of) {
    return name_ranks(ranks) + " (" + hosts_of(ranks) + ")";
}

// The most frequent value first; the ranks with other values are the suspects.
std::string values_that_differ(const std::map<std::string, std::vector<uint32_t>>& ranks_by_value,
                               const HostsOf& hosts_of) {
    std::vector<std::pair<std::string, std::vector<uint32_t>>> values(ranks_by_value.begin(),
                                                                      ranks_by_value.end());
    std::ranges::stable_sort(values, std::greater<>(), [](const auto& held) { return held.second.size(); });
    std::string out;
    for (size_t i = 0; i < values.size() && i < kValuesShown; ++i)
        out += (i ? ", " : "") + printable(values[i].first, 80) + " on " + who(values[i].second, hosts_of);
    return values.size() > kValuesShown ? out + ", ..." : out;
}

std::optional<std::string> misfit(const ComparedFact& compared, const HostsOf& hosts_of) {
    const std::string name = printable(compared.fact.name(), 80);
    const std::string advice = printable(compared.fact.remedy());
    const std::string remedy = advice.empty() ? "" : "; " + advice;
    const auto& by_value = compared.ranks_by_value;
    if (compared.fact.rule() == wire::Fact::SAME) {
        if (by_value.size() < 2) return std::nullopt;
        return name + " differs: " + values_that_differ(by_value, hosts_of) + remedy;
    }
    const auto shared =
        std::ranges::find_if(by_value, [](const auto& held) { return held.second.size() > 1; });
    if (shared == by_value.end()) return std::nullopt;
    return who(shared->second, hosts_of) + " have the same " + name + ", " + printable(shared->first, 80) +
           remedy;
}

}  // namespace

std::optional<std::string> unfit(const google::protobuf::RepeatedPtrField<wire::Fact>& facts) {
    if (facts.size() > kMaxFacts)
        return "a rank has at most " + std::to_string(kMaxFacts) + " facts to compare";
    for (const auto& fact : facts)
        if (fact.name().size() > kMaxFactBytes || fact.value().size() > kMaxFactBytes ||
            fact.remedy().size() > kMaxRemedyBytes)
            return "a fact's name and value have at most " + std::to_string(kMaxFactBytes) + " bytes each";
    return std::nullopt;
}

void Comparison::add(uint32_t rank, const google::protobuf::RepeatedPtrField<wire::Fact>& facts) {
    for (const auto& fact : facts) {
        auto found = std::ranges::find(
            compared_, fact.name(), [](auto& c) -> auto& { return c.fact.name(); });
        if (found == compared_.end()) found = compared_.insert(compared_.end(), {fact, {}});
        auto& ranks = found->ranks_by_value[fact.value()];
        ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), rank), rank);
    }
}

void Comparison::remove(uint32_t rank) {
    for (auto& compared : compared_) {
        for (auto& [value, ranks] : compared.ranks_by_value) std::erase(ranks, rank);
        std::erase_if(compared.ranks_by_value, [](const auto& held) { return held.second.empty(); });
    }
}

std::optional<std::string> Comparison::disagreement(const HostsOf& hosts_of) const {
    for (const auto& compared : compared_)
        if (auto why = misfit(compared, hosts_of)) return why;
    return std::nullopt;
}

}  // namespace dp
