// SPDX-License-Identifier: Apache-2.0
#include "engine/node_fitness.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "findings/comparison.hpp"

namespace dp {
namespace {

constexpr size_t kReasonsShown = 4, kFaultsShown = 3, kLongestReason = 300;  // bytes
// So many alike nodes tell a slow one.
constexpr size_t kFewestMeasured = 4;
constexpr const char* kOption = " (--dp-preflight)";

std::string shortened(std::string text, size_t most) {
    return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

// "temporary files: /tmp: full"; "" if it has no fault.
std::string faults_of(const wire::NodeExamination& said) {
    std::vector<std::string> faults;
    for (const auto& topic : said.topics())
        for (const auto& one : topic.findings())
            if (one.level() == wire::NodeExamination::FAULT)
                faults.push_back(printable(one.check(), 40) + ": " + printable(one.seen(), 200));
    const size_t more = faults.size() - std::min(faults.size(), kFaultsShown);
    faults.resize(faults.size() - more);
    return shortened(join(faults, ", "), kLongestReason) +
           (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

doctor::NodeFacts facts_of(const wire::NodeExamination& said) {
    doctor::NodeFacts facts;
    for (const auto& one : said.properties()) facts[printable(one.name(), 40)] = printable(one.value(), 80);
    return facts;
}

std::string hosts_of(const std::vector<uint32_t>& nodes, const Membership& members) {
    std::vector<std::string> hosts;
    for (const uint32_t node : nodes) hosts.push_back(members.nodes()[node].host);
    return compress_hostlist(hosts);
}

// Of nodes at these indices of `nodes`.
void add(Fitness& fitness, const doctor::ComparedFact& one, const std::vector<uint32_t>& nodes) {
    if (one.level == doctor::Level::ok) return;
    const std::string line = shortened(one.check + ": " + one.seen, kLongestReason);
    for (const size_t i : one.odd) {
        std::string& all = fitness.unfit[nodes[i]];
        all = shortened(all + (all.empty() ? "" : ", ") + line, kLongestReason);
    }
    if (!one.odd.empty()) return;
    if (one.level == doctor::Level::warning)
        fitness.remarks.push_back(line + "; " + one.why);
    else
        fitness.disagreement += (fitness.disagreement.empty() ? "" : "; ") + line + "; " + one.why;
}

// What was measured where all is well.
void add_summary(Fitness& fitness, const std::vector<doctor::ComparedFact>& compared) {
    std::vector<std::string> parts;
    for (const auto& one : compared)
        if (one.level == doctor::Level::ok) parts.push_back(one.check + ": " + one.seen);
    if (!parts.empty()) fitness.remarks.push_back(join(parts, "; "));
}

}  // namespace

wire::NodeExamination not_examined_in_time() {
    wire::NodeExamination said;
    auto& finding = *said.add_topics()->add_findings();
    finding.set_check("examination");
    finding.set_level(wire::NodeExamination::FAULT);
    finding.set_seen("not done within " + words(kExaminationPatience) +
                     " (does a driver or a file system not answer?)");
    return said;
}

// Of what was found only the faults are looked at.
void NodeExaminations::note(uint32_t node, wire::NodeExamination said) {
    for (auto& topic : *said.mutable_topics()) {
        auto* const findings = topic.mutable_findings();
        findings->erase(
            std::remove_if(findings->begin(), findings->end(),
                           [](const auto& one) { return one.level() != wire::NodeExamination::FAULT; }),
            findings->end());
    }
    said_[node] = std::move(said);
}

bool NodeExaminations::complete(const Membership& members) const {
    return said_.size() >= members.here_count() &&
           std::ranges::all_of(members.here(), [&](uint32_t node) { return said_.contains(node); });
}

Fitness NodeExaminations::judge(const Membership& members) const {
    Fitness fitness;
    std::vector<uint32_t> nodes;  // that are compared
    std::vector<doctor::NodeFacts> facts;
    std::vector<std::string> hosts;
    std::map<std::string, std::vector<uint32_t>> not_examined;  // by reason
    for (const uint32_t node : members.here()) {
        const auto found = said_.find(node);
        if (found == said_.end()) {
            fitness.unfit[node] = "it has not said within " + words(kExaminationsCome) + " whether it is fit";
        } else if (const auto& said = found->second; !said.problem().empty()) {
            not_examined[printable(said.problem(), 300)].push_back(node);
        } else {
            if (const std::string why = faults_of(said); !why.empty()) fitness.unfit[node] = why;
            nodes.push_back(node);
            facts.push_back(facts_of(said));
            hosts.push_back(members.nodes()[node].host);
        }
    }
    for (const auto& [why, those] : not_examined)
        fitness.remarks.push_back(hosts_of(those, members) + (those.size() == 1 ? " was" : " were") +
                                  " not examined: " + why);
    for (auto& one : doctor::compare_nodes(facts, hosts)) {
        // With another driver ranks work all the same; whoever wants them equal says so to Slurm.
        if (one.level == doctor::Level::warning) one.odd.clear();
        add(fitness, one, nodes);
    }
    compare_measures(nodes, facts, members, fitness);
    return fitness;
}

// Among nodes of one kind: others may well be slower.
void NodeExaminations::compare_measures(const std::vector<uint32_t>& nodes,
                                        const std::vector<doctor::NodeFacts>& facts,
                                        const Membership& members, Fitness& fitness) const {
    std::map<std::array<std::string, 3>, std::vector<uint32_t>> kinds;
    for (size_t i = 0; i < nodes.size(); ++i) {
        const auto fact = [&](const char* name) {
            const auto found = facts[i].find(name);
            return found == facts[i].end() ? "" : found->second;
        };
        kinds[{fact("CPU model"), fact("CPUs"), fact("GPUs")}].push_back(nodes[i]);
    }
    for (const auto& [kind, alike] : kinds) {
        std::vector<doctor::NodeMeasures> measures;
        std::vector<std::string> hosts;
        for (const uint32_t node : alike) {
            hosts.push_back(members.nodes()[node].host);
            for (auto& measured = measures.emplace_back(); const auto& one : said_.at(node).measures())
                measured[one.name()] = one.value();
        }
        auto compared = doctor::compare_measures(measures, hosts);
        for (auto& one : compared) {
            if (alike.size() < kFewestMeasured) one.odd.clear();
            add(fitness, one, alike);
        }
        add_summary(fitness, compared);
    }
}

std::vector<LinkRounds::Place> NodeExaminations::places(const Membership& members) const {
    std::vector<LinkRounds::Place> places;
    for (const uint32_t node : members.here()) {
        const auto said = said_.find(node);
        const Membership::Node& there = members.nodes()[node];
        if (there.tasks == 0 || said == said_.end() || said->second.link_port() == 0) continue;
        places.push_back({node, there.address, static_cast<uint16_t>(said->second.link_port()),
                          said->second.link_token()});
    }
    return places;
}

Fitness judge_links(const LinkRounds& rounds, const Membership& members) {
    std::vector<uint32_t> nodes;
    std::vector<std::string> hosts;
    for (const auto& place : rounds.places()) {
        nodes.push_back(place.node);
        hosts.push_back(members.nodes()[place.node].host);
    }
    Fitness fitness;
    const auto compared = doctor::check_links(rounds.links(), hosts);
    for (const auto& one : compared) add(fitness, one, nodes);
    add_summary(fitness, compared);
    return fitness;
}

std::string who_is_unfit(const std::map<uint32_t, std::string>& unfit, const Membership& members) {
    std::map<std::string, std::vector<uint32_t>> by_reason;
    for (const auto& [node, why] : unfit) by_reason[why].push_back(node);
    std::vector<std::string> parts;
    for (const auto& [why, nodes] : by_reason) {
        if (parts.size() == kReasonsShown) {
            parts.push_back("...");
            break;
        }
        parts.push_back(hosts_of(nodes, members) + ": " + why);
    }
    return join(parts, "; ");
}

std::string refusal(const Fitness& fitness, const Membership& members) {
    const std::string anyway = "; to start all the same: --dp-preflight=off";
    const std::string apart = fitness.disagreement.empty()
                                  ? ""
                                  : "the nodes of this step do not fit together" + std::string(kOption) +
                                        ": " + shortened(fitness.disagreement, kLongestReason) +
                                        "; choose nodes that are alike (--constraint, --exclude)";
    if (fitness.unfit.empty()) return apart + anyway;
    std::vector<uint32_t> nodes;
    for (const auto& [node, why] : fitness.unfit) nodes.push_back(node);
    const bool are_all = nodes.size() == members.nodes().size();
    const std::string how_many =
        are_all ? "no node is" : plural(nodes.size(), "node") + (nodes.size() == 1 ? " is not" : " are not");
    const std::string remedy = are_all ? "`dpctl doctor` there says what mends it"
                                       : "start without " + std::string(nodes.size() == 1 ? "it" : "them") +
                                             ": --exclude=" + hosts_of(nodes, members);
    return how_many + " fit for this step" + kOption + ": " + who_is_unfit(fitness.unfit, members) + "; " +
           remedy + (apart.empty() ? "" : "; and " + apart) + anyway;
}

}  // namespace dp
