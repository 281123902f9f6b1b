// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/text.hpp"

namespace dp {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

// A label's value: backslashes, quotes and line ends are escaped; ours are printable already.
std::string escaped(const std::string& value) {
    std::string out;
    for (char c : printable(value)) {
        if (c == '\\' || c == '"') out += '\\';
        out += c;
    }
    return out;
}

class Writer {
 public:
    explicit Writer(std::string step) : step_(std::move(step)) {}

    void metric(const char* name, const char* help) {
        name_ = name;
        out_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " gauge\n";
    }
    void value(const std::string& number, const Labels& labels = {}) {
        out_ += name_ + "{step=\"" + escaped(step_) + "\"";
        for (const auto& [label, text] : labels) out_ += "," + label + "=\"" + escaped(text) + "\"";
        out_ += "} " + number + "\n";
    }
    void count(size_t number, const Labels& labels = {}) { value(std::to_string(number), labels); }
    void seconds(int64_t ms, const Labels& labels = {}) {
        char text[32];
        std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ms) / 1000);
        value(text, labels);
    }
    std::string take() { return std::move(out_); }

 private:
    std::string step_;
    std::string name_;
    std::string out_;
};

// In the order of wire::StepStatus::State.
constexpr const char* kStates[] = {"not_started", "started", "hello", "goodbye", "vanished", "exited"};

const char* state_of(const wire::StepStatus::Node& node) {
    if (node.lost()) return "lost";
    if (node.left()) return "left";
    if (!node.joined()) return "not_connected";
    return node.silent_ms() > 0 ? "silent" : "here";
}

void write_ranks(Writer& w, const wire::StepStatus& status) {
    std::vector<size_t> counts(std::size(kStates), 0);
    size_t placed = 0;
    for (const auto& node : status.nodes())
        for (const auto& rank : node.ranks()) {
            ++placed;
            if (static_cast<size_t>(rank.state()) < counts.size())
                ++counts[static_cast<size_t>(rank.state())];
        }
    counts[0] +=
        status.world_size() - std::min<size_t>(placed, status.world_size());  // of nodes that have not come
    w.metric("slurm_dp_ranks", "Ranks of the step by state.");
    for (size_t s = 0; s < counts.size(); ++s) w.count(counts[s], {{"state", kStates[s]}});
}

void write_nodes(Writer& w, const wire::StepStatus& status) {
    std::map<std::string, size_t> counts = {
        {"here", 0}, {"silent", 0}, {"lost", 0}, {"left", 0}, {"not_connected", 0}};
    for (const auto& node : status.nodes()) ++counts[state_of(node)];
    w.metric("slurm_dp_nodes", "Nodes of the step by state.");
    for (const auto& [state, count] : counts) w.count(count, {{"state", state}});
    w.metric("slurm_dp_node_silent_seconds", "How long a node that is silent has been so.");
    for (const auto& node : status.nodes())
        if (node.silent_ms() > 0) w.seconds(node.silent_ms(), {{"node", node.host()}});
}

// When the last rank reached a moment; nothing while some have not.
template <typename Has, typename When>
void write_moment(Writer& w, const wire::StepStatus& status, const char* moment, Has has, When when) {
    std::optional<int64_t> last;
    size_t reached = 0;
    for (const auto& node : status.nodes())
        for (const auto& rank : node.ranks())
            if (has(rank)) {
                ++reached;
                last = std::max(last.value_or(when(rank)), when(rank));
            }
    if (last && reached == status.world_size()) w.seconds(*last, {{"moment", moment}});
}

}  // namespace

std::string metrics_text(const std::string& step, const wire::StepStatus& status) {
    Writer w(step);
    using Rank = wire::StepStatus::Rank;
    write_ranks(w, status);
    write_nodes(w, status);
    w.metric("slurm_dp_start_seconds",
             "When all ranks had reached a moment of the start, since the broker's own.");
    write_moment(
        w, status, "started", [](const Rank& r) { return r.has_started_ms(); },
        [](const Rank& r) { return r.started_ms(); });
    write_moment(
        w, status, "hello", [](const Rank& r) { return r.has_hello_ms(); },
        [](const Rank& r) { return r.hello_ms(); });
    write_moment(
        w, status, "id", [](const Rank& r) { return r.has_id_ms(); },
        [](const Rank& r) { return r.id_ms(); });
    write_moment(
        w, status, "ready", [](const Rank& r) { return r.has_ready_ms(); },
        [](const Rank& r) { return r.ready_ms(); });
    w.metric("slurm_dp_meetings", "Barriers, broadcasts and unique ids that ranks wait in.");
    w.count(static_cast<size_t>(status.meetings_size()));
    w.metric("slurm_dp_age_seconds", "Since the broker started.");
    w.seconds(status.age_ms());
    w.metric("slurm_dp_ending", "1 while the step is being ended because of a failure.");
    w.count(status.ending().empty() ? 0 : 1);
    return w.take();
}

}  // namespace dp
