// SPDX-License-Identifier: Apache-2.0
//
// `dpctl status`.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "engine/table.hpp"

namespace dp {
namespace {

using Status = wire::StepStatus;

// By Status::State: in JSON, and in a sentence.
constexpr std::array<std::pair<const char*, const char*>, Status::State_ARRAYSIZE> kStates = {
    {{"not started", "not started"},
     {"started", "started, no hello"},
     {"hello", "said hello"},
     {"goodbye", "said goodbye"},
     {"vanished", "closed its connection without goodbye"},
     {"exited", ""}}};

const auto& state_of(Status::State state) {
    return kStates[Status::State_IsValid(state) ? static_cast<size_t>(state) : 0];
}

std::string words_for(const Status::Rank& rank) {
    if (rank.state() == Status::EXITED) return describe_status(rank.wait_status());
    const bool stopped = rank.state() == Status::HELLO && rank.stopped();
    return state_of(rank.state()).second + std::string(stopped ? ", stopped by a signal" : "");
}

// In JSON; in text "here" is "connected".
std::string node_state(const Status::Node& node) {
    return node.lost()            ? "lost"
           : node.left()          ? "left"
           : !node.joined()       ? "not connected"
           : node.silent_ms() > 0 ? "silent"
                                  : "here";
}

std::string node_state_in_words(const Status::Node& node) {
    const std::string state = node_state(node);
    if (state == "silent") return "silent for " + words(std::chrono::milliseconds(node.silent_ms()));
    return state == "here" ? "connected" : state == "left" ? "has left" : state;
}

std::string ranks_of(const Status::Node& node) {
    std::map<std::string, std::vector<uint32_t>> by_state;
    for (const auto& rank : node.ranks()) by_state[words_for(rank)].push_back(rank.rank());
    std::string out = node.spare() ? "a spare" : "";
    for (auto& [words, ranks] : by_state) {
        std::sort(ranks.begin(), ranks.end());
        out += fmt::format("{}{} {}", out.empty() ? "" : "; ", name_ranks(ranks), words);
    }
    return out;
}

}  // namespace

const char* name_of(Status::State state) {
    return state_of(state).first;
}

std::string status_text(const std::string& step, const Status& status) {
    std::string out = fmt::format("step {}: {} on {}, for {}\n", step, plural(status.world_size(), "rank"),
                                  plural(static_cast<size_t>(status.nodes_size()), "node"),
                                  words(std::chrono::milliseconds(status.age_ms())));
    if (status.has_restarts_left()) out += generation_in_words(status) + "\n";
    if (!status.ending().empty()) out += "it is being ended: " + status.ending() + "\n";
    std::vector<std::vector<std::string>> lines;
    for (const auto& node : status.nodes())
        lines.push_back({node.host().empty() ? fmt::format("node {}", node.node_rank()) : node.host(),
                         node_state_in_words(node), ranks_of(node)});
    out += aligned(lines, 2);
    for (const auto& meeting : status.meetings())
        out += fmt::format("group \"{}\": {} of {} ranks wait, for {}; missing: {}\n",
                           printable(meeting.group(), 60), meeting.arrived(), meeting.expected(),
                           words(std::chrono::milliseconds(meeting.waited_ms())), meeting.missing());
    return out;
}

std::string status_json(const std::string& step, const Status& status) {
    using Json = nlohmann::ordered_json;
    Json nodes = Json::array();
    for (const auto& node : status.nodes()) {
        Json ranks = Json::array();
        for (const auto& rank : node.ranks()) {
            Json told = {{"rank", rank.rank()},
                         {"state", name_of(rank.state())},
                         {"pid", rank.pid()},
                         {"stopped", rank.stopped()}};
            const int ended = rank.wait_status();
            if (rank.state() == Status::EXITED && WIFSIGNALED(ended))
                told["signal"] = WTERMSIG(ended);
            else if (rank.state() == Status::EXITED)
                told["exit_code"] = WEXITSTATUS(ended);
            ranks.push_back(std::move(told));
        }
        nodes.push_back({{"node_rank", node.node_rank()},
                         {"host", node.host()},
                         {"address", node.address()},
                         {"state", node_state(node)},
                         {"silent_ms", node.silent_ms()},
                         {"ranks", std::move(ranks)}});
    }
    Json meetings = Json::array();
    for (const auto& meeting : status.meetings())
        meetings.push_back({{"group", printable(meeting.group())},
                            {"sequence", meeting.sequence()},
                            {"arrived", meeting.arrived()},
                            {"expected", meeting.expected()},
                            {"waited_ms", meeting.waited_ms()},
                            {"missing", meeting.missing()}});
    const Json out = {{"step", step},
                      {"world_size", status.world_size()},
                      {"generation", status.generation()},
                      {"spares_left", status.spares_left()},
                      {"age_ms", status.age_ms()},
                      {"ending", status.ending()},
                      {"nodes", std::move(nodes)},
                      {"meetings", std::move(meetings)}};
    return out.dump(2) + "\n";
}

int show_status(const StatusOptions& options) {
    auto answer = query_step(options.step);
    if (!answer) return complain(answer.error().message);
    return print(options.json ? status_json(answer->step, answer->status)
                              : status_text(answer->step, answer->status));
}

}  // namespace dp
