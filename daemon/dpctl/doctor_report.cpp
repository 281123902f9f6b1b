// SPDX-License-Identifier: Apache-2.0
//
// What `dpctl doctor` prints.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "dpctl/commands.hpp"

namespace dp {
namespace {

using doctor::Examination;
using doctor::Finding;
using doctor::Level;
using doctor::Topic;

const char* in_words(Level level) {
    return level == Level::ok ? "ok" : level == Level::fault ? "fault" : "warning";
}

struct Counts {
    size_t checks = 0, faults = 0, warnings = 0;
    void add(const std::vector<Topic>& topics) {
        for (const Topic& topic : topics)
            for (const Finding& one : topic.findings) {
                ++checks;
                faults += one.level == Level::fault;
                warnings += one.level == Level::warning;
            }
    }
    std::string in_words() const {
        return fmt::format("{}, {}, {}", plural(checks, "check"), plural(faults, "fault"),
                           plural(warnings, "warning"));
    }
};

std::string table_of(const std::vector<Topic>& topics) {
    size_t width = 0;
    for (const Topic& topic : topics)
        for (const Finding& one : topic.findings) width = std::max(width, one.check.size());
    std::string out;
    for (const Topic& topic : topics) {
        if (topic.findings.empty()) continue;
        out += topic.name + "\n";
        for (const Finding& one : topic.findings) {
            const char* const level = one.level == Level::ok      ? "ok"
                                      : one.level == Level::fault ? "FAULT"
                                                                  : "WARNING";
            out += fmt::format("  {:<7}  {:<{}}  {}\n", level, one.check, width, one.seen);
            if (one.level != Level::ok)
                out += fmt::format("           {}\n           → {}\n", one.why, one.remedy);
        }
    }
    return out;
}

nlohmann::ordered_json json_of(const std::vector<Topic>& topics) {
    nlohmann::ordered_json checks = nlohmann::ordered_json::array();
    for (const Topic& topic : topics)
        for (const Finding& one : topic.findings)
            checks.push_back({{"topic", topic.name},
                              {"check", one.check},
                              {"level", in_words(one.level)},
                              {"seen", one.seen},
                              {"why", one.why},
                              {"remedy", one.remedy}});
    return checks;
}

nlohmann::ordered_json json_of(const Examination& node) {
    Counts counts;
    counts.add(node.topics);
    return {{"host", node.host},
            {"faults", counts.faults},
            {"warnings", counts.warnings},
            {"checks", json_of(node.topics)}};
}

std::string dump(const nlohmann::ordered_json& json) {
    return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The nodes that have found the same, to the letter, and what that is.
struct Alike {
    Finding finding;
    std::vector<size_t> nodes;  // ascending
};

// One check on all nodes: a line for those where it is ok, and one for each way in which it is not.
std::vector<Finding> folded(const std::vector<Alike>& all, const std::vector<std::string>& hosts) {
    const auto names = [&](const std::vector<size_t>& nodes) {
        std::vector<std::string> those;
        for (const size_t node : nodes) those.push_back(hosts[node]);
        return compress_hostlist(those);
    };
    std::vector<Finding> lines;
    std::vector<size_t> fine;
    std::vector<std::string> seen;
    for (const auto& [finding, nodes] : all)
        if (finding.level == Level::ok) {
            fine.insert(fine.end(), nodes.begin(), nodes.end());
            seen.push_back(finding.seen);
        }
    std::ranges::sort(fine);
    // What is each node's own, such as its address, is left out.
    const std::string& check = all.front().finding.check;
    if (fine.size() == hosts.size())
        lines.push_back(doctor::ok(
            check, seen.size() == 1 ? seen.front() : fmt::format("on all {} nodes", hosts.size())));
    else if (!fine.empty())
        lines.push_back(doctor::ok(check, names(fine) + (seen.size() == 1 ? ": " + seen.front() : "")));
    for (const auto& [finding, nodes] : all) {
        if (finding.level == Level::ok) continue;
        lines.push_back(finding);
        lines.back().seen =
            (nodes.size() == hosts.size() ? fmt::format("all {} nodes", nodes.size()) : names(nodes)) + ": " +
            finding.seen;
    }
    return lines;
}

std::vector<std::string> hosts_of(const StepExamination& step) {
    std::vector<std::string> hosts;
    for (const Examination& node : step.nodes) hosts.push_back(node.host);
    return hosts;
}

std::vector<Topic> folded(const StepExamination& step) {
    std::vector<Topic> topics;
    std::vector<std::vector<std::vector<Alike>>> found;  // by topic and check
    const auto hosts = hosts_of(step);
    for (size_t node = 0; node < hosts.size(); ++node)
        for (const Topic& topic : step.nodes[node].topics) {
            const auto at =
                static_cast<size_t>(std::ranges::find(topics, topic.name, &Topic::name) - topics.begin());
            if (at == topics.size()) topics.push_back({topic.name, {}}), found.emplace_back();
            for (const Finding& one : topic.findings) {
                auto check = std::ranges::find_if(
                    found[at], [&](const auto& alike) { return alike.front().finding.check == one.check; });
                if (check == found[at].end()) check = found[at].insert(check, std::vector<Alike>());
                auto alike = std::ranges::find(*check, one, &Alike::finding);
                if (alike == check->end()) alike = check->insert(alike, Alike{one, {}});
                alike->nodes.push_back(node);
            }
        }
    for (size_t at = 0; at < topics.size(); ++at)
        for (const auto& check : found[at])
            for (Finding& line : folded(check, hosts)) topics[at].findings.push_back(std::move(line));
    topics.push_back({"between the nodes", step.between});
    return topics;
}

}  // namespace

std::string doctor_text(const Examination& node) {
    Counts counts;
    counts.add(node.topics);
    return table_of(node.topics) + node.host + ": " + counts.in_words() + "\n";
}

std::string doctor_text(const StepExamination& step) {
    Counts counts;
    for (const Examination& node : step.nodes) counts.add(node.topics);
    counts.add({{"", step.between}});
    return table_of(folded(step)) + compress_hostlist(hosts_of(step)) + ": " + counts.in_words() + "\n";
}

std::string doctor_json(const Examination& node) {
    return dump(json_of(node));
}

std::string doctor_json(const StepExamination& step) {
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (const Examination& node : step.nodes) nodes.push_back(json_of(node));
    return dump({{"nodes", std::move(nodes)}, {"between", json_of({{"between the nodes", step.between}})}});
}

}  // namespace dp
