// SPDX-License-Identifier: Apache-2.0
#include "dpctl/status.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "dpctl/query.hpp"
#include "dpctl/table.hpp"

namespace dp {
namespace {

std::string words_for(const wire::StepStatus::Rank& rank) {
    switch (rank.state()) {
        case wire::StepStatus::STARTED:
            return "started, no hello";
        case wire::StepStatus::HELLO:
            return rank.stopped() ? "said hello, stopped by a signal" : "said hello";
        case wire::StepStatus::GOODBYE:
            return "said goodbye";
        case wire::StepStatus::VANISHED:
            return "closed its connection without goodbye";
        case wire::StepStatus::EXITED:
            return describe_status(rank.wait_status());
        default:
            return "not started";
    }
}

std::string node_state(const wire::StepStatus::Node& node) {
    if (node.lost()) return "lost";
    if (node.left()) return "has left";
    if (!node.joined()) return "not connected";
    return node.silent_ms() > 0 ? "silent for " + words(std::chrono::milliseconds(node.silent_ms()))
                                : "connected";
}

std::string ranks_of(const wire::StepStatus::Node& node) {
    std::map<std::string, std::vector<uint32_t>> by_state;
    for (const auto& rank : node.ranks()) by_state[words_for(rank)].push_back(rank.rank());
    std::string out;
    for (auto& [words, ranks] : by_state) {
        std::sort(ranks.begin(), ranks.end());
        out += (out.empty() ? "" : "; ") + name_ranks(ranks) + " " + words;
    }
    return out;
}

}  // namespace

const char* name_of(wire::StepStatus::State state) {
    switch (state) {
        case wire::StepStatus::STARTED:
            return "started";
        case wire::StepStatus::HELLO:
            return "hello";
        case wire::StepStatus::GOODBYE:
            return "goodbye";
        case wire::StepStatus::VANISHED:
            return "vanished";
        case wire::StepStatus::EXITED:
            return "exited";
        default:
            return "not started";
    }
}

std::string status_text(const std::string& step, const wire::StepStatus& status) {
    std::string out = "step " + step + ": " + plural(status.world_size(), "rank") + " on " +
                      plural(static_cast<size_t>(status.nodes_size()), "node") + ", for " +
                      words(std::chrono::milliseconds(status.age_ms())) + "\n";
    if (!status.ending().empty()) out += "it is being ended: " + status.ending() + "\n";
    std::vector<std::vector<std::string>> lines;
    for (const auto& node : status.nodes())
        lines.push_back({node.host().empty() ? "node " + std::to_string(node.node_rank()) : node.host(),
                         node_state(node), ranks_of(node)});
    out += aligned(lines, 2);
    for (const auto& meeting : status.meetings())
        out += "group \"" + printable(meeting.group(), 60) + "\": " + std::to_string(meeting.arrived()) +
               " of " + std::to_string(meeting.expected()) + " ranks wait, for " +
               words(std::chrono::milliseconds(meeting.waited_ms())) + "; missing: " + meeting.missing() +
               "\n";
    return out;
}

std::string status_json(const std::string& step, const wire::StepStatus& status) {
    nlohmann::ordered_json out;
    out["step"] = step;
    out["world_size"] = status.world_size();
    out["age_ms"] = status.age_ms();
    out["ending"] = status.ending();
    out["nodes"] = nlohmann::ordered_json::array();
    for (const auto& node : status.nodes()) {
        nlohmann::ordered_json one;
        one["node_rank"] = node.node_rank();
        one["host"] = node.host();
        one["address"] = node.address();
        one["state"] = node.lost()            ? "lost"
                       : node.left()          ? "left"
                       : !node.joined()       ? "not connected"
                       : node.silent_ms() > 0 ? "silent"
                                              : "here";
        one["silent_ms"] = node.silent_ms();
        one["ranks"] = nlohmann::ordered_json::array();
        for (const auto& rank : node.ranks()) {
            nlohmann::ordered_json told;
            told["rank"] = rank.rank();
            told["state"] = name_of(rank.state());
            told["pid"] = rank.pid();
            told["stopped"] = rank.stopped();
            if (rank.state() == wire::StepStatus::EXITED) {
                const int wait_status = rank.wait_status();
                told[WIFSIGNALED(wait_status) ? "signal" : "exit_code"] =
                    WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
            }
            one["ranks"].push_back(std::move(told));
        }
        out["nodes"].push_back(std::move(one));
    }
    out["meetings"] = nlohmann::ordered_json::array();
    for (const auto& meeting : status.meetings())
        out["meetings"].push_back({{"group", printable(meeting.group())},
                                   {"sequence", meeting.sequence()},
                                   {"arrived", meeting.arrived()},
                                   {"expected", meeting.expected()},
                                   {"waited_ms", meeting.waited_ms()},
                                   {"missing", meeting.missing()}});
    return out.dump(2) + "\n";
}

int show_status(const StatusOptions& options) {
    auto answer = query_step(options.step);
    if (!answer) return complain(answer.error().message);
    return print(options.json ? status_json(answer->step, answer->status)
                              : status_text(answer->step, answer->status));
}

}  // namespace dp
