// SPDX-License-Identifier: Apache-2.0
#include "engine/usage.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/phase_page.hpp"

namespace dp {
namespace {

// A node's report about a rank is untrusted; only its size is limited.
void copy_measured(const wire::NodeUsage::Rank& said, wire::NodeUsage::Rank& told) {
    told.set_tiles(printable(said.tiles(), kMaxTilesText));
    told.set_pid(said.pid());
    told.set_command(printable(said.command(), kMaxCommand));
    if (said.has_own_step_ns()) told.set_own_step_ns(std::max<int64_t>(said.own_step_ns(), 0));
    if (said.has_cpu_ns()) told.set_cpu_ns(std::max<int64_t>(said.cpu_ns(), 0));
    if (said.phase_ns_size() != static_cast<int>(kPhases)) return;
    for (const int64_t ns : said.phase_ns()) told.add_phase_ns(std::max<int64_t>(ns, 0));
}

void copy_gpus(const wire::NodeUsage& said, wire::NodeUsage& told) {
    for (const auto& gpu : said.gpus()) {
        if (told.gpus_size() == kMaxGpus) return;
        auto& one = *told.add_gpus();
        one.set_tile(gpu.tile());
        if (gpu.has_busy_percent()) one.set_busy_percent(std::min(gpu.busy_percent(), 100u));
        one.set_memory_used(gpu.memory_used());
        one.set_memory_total(gpu.memory_total());
    }
}

}  // namespace

std::optional<std::vector<uint32_t>> UsageRounds::ask(Asker asker, const std::vector<uint32_t>& nodes,
                                                      Time now) {
    const bool begins = askers_.empty();
    if (askers_.size() >= kMaxUsageAskers && !askers_.contains(asker)) return std::nullopt;
    askers_.insert(asker);
    std::vector<uint32_t> asked;
    if (!begins) return asked;
    deadline_ = now + kUsageDeadline;
    for (uint32_t node : nodes) {
        awaited_.insert(node);
        if (owing_.insert(node).second) asked.push_back(node);
    }
    return asked;
}

void UsageRounds::answer(uint32_t node, const wire::NodeUsage& usage, const Membership& members) {
    owing_.erase(node);
    if (awaited_.erase(node) == 0) return;
    std::map<uint32_t, const wire::NodeUsage::Rank*> said;
    for (const auto& rank : usage.ranks()) said.emplace(rank.rank(), &rank);
    wire::NodeUsage& kept = answers_[node];
    kept.set_now_ns(usage.now_ns());
    copy_gpus(usage, kept);
    for (uint32_t rank : members.nodes()[node].ranks) {
        auto& told = *kept.add_ranks();
        told.set_rank(rank);
        if (auto found = said.find(rank); found != said.end()) copy_measured(*found->second, told);
    }
}

// A node's ranks, measured or not, with the broker's own knowledge.
wire::NodeUsage UsageRounds::told(uint32_t node, const Membership& members) const {
    wire::NodeUsage out;
    if (auto answered = answers_.find(node); answered != answers_.end()) out = answered->second;
    out.set_node_rank(node);
    out.set_host(members.nodes()[node].host);
    int local = 0;
    for (uint32_t number : members.nodes()[node].ranks) {
        auto& rank = local < out.ranks_size() ? *out.mutable_ranks(local) : *out.add_ranks();
        rank.set_rank(number);
        rank.set_local_rank(static_cast<uint32_t>(local++));
        rank.set_state(members.ranks()[number].told.state());
        rank.set_stopped(members.ranks()[number].told.stopped());
    }
    return out;
}

std::optional<UsageRounds::End> UsageRounds::end(const Membership& members,
                                                 const std::function<std::string(uint32_t)>& why_late,
                                                 Time now) {
    if (askers_.empty() || (!awaited_.empty() && now < deadline_)) return std::nullopt;
    End end;
    end.askers.assign(askers_.begin(), askers_.end());
    end.usage.set_world_size(static_cast<uint32_t>(members.ranks().size()));
    size_t bytes = 0;
    for (uint32_t node = 0; node < members.nodes().size(); ++node) {
        wire::NodeUsage& one = *end.usage.add_nodes();
        one = told(node, members);
        if (!answers_.contains(node)) one.set_problem(why_late(node));
        bytes += one.ByteSizeLong();
        if (bytes <= kMaxUsage) continue;
        one.clear_ranks();
        one.clear_gpus();
        one.set_problem("left out: the step is too large for one answer");
    }
    askers_.clear();
    awaited_.clear();
    answers_.clear();
    return end;
}

}  // namespace dp
