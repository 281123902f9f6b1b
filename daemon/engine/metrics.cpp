// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics.hpp"

#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace dp {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

// Escapes a label's value: backslashes, quotes and line ends; ours are printable already.
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

void write_moment(Writer& w, const char* moment, bool reached, int64_t ms) {
    if (reached) w.seconds(ms, {{"moment", moment}});
}

}  // namespace

std::string metrics_text(const std::string& step, const wire::StepStatus& status) {
    Writer w(step);
    w.metric("slurm_dp_ranks", "Ranks of the step by state.");
    for (int state = 0; state < static_cast<int>(std::size(kStates)); ++state)
        w.count(state < status.ranks_by_state_size() ? status.ranks_by_state(state) : 0,
                {{"state", kStates[state]}});
    w.metric("slurm_dp_nodes", "Nodes of the step by state.");
    w.count(status.nodes_here(), {{"state", "here"}});
    w.count(status.nodes_left(), {{"state", "left"}});
    w.count(status.nodes_lost(), {{"state", "lost"}});
    w.count(status.nodes_not_connected(), {{"state", "not_connected"}});
    w.count(status.nodes_silent(), {{"state", "silent"}});
    w.metric("slurm_dp_node_silent_seconds", "How long a node that is silent has been so.");
    for (const auto& node : status.nodes())
        if (node.silent_ms() > 0) w.seconds(node.silent_ms(), {{"node", node.host()}});
    w.metric("slurm_dp_start_seconds",
             "When all ranks had reached a moment of the start, since the broker's own.");
    write_moment(w, "started", status.has_all_started_ms(), status.all_started_ms());
    write_moment(w, "hello", status.has_all_hello_ms(), status.all_hello_ms());
    write_moment(w, "id", status.has_all_id_ms(), status.all_id_ms());
    write_moment(w, "ready", status.has_all_ready_ms(), status.all_ready_ms());
    w.metric("slurm_dp_meetings", "Barriers, broadcasts and unique ids that ranks wait in.");
    w.count(status.meetings_open());
    w.metric("slurm_dp_age_seconds", "Since the broker started.");
    w.seconds(status.age_ms());
    w.metric("slurm_dp_ending", "1 while the step is being ended because of a failure.");
    w.count(status.ending().empty() ? 0 : 1);
    return w.take();
}

}  // namespace dp
