// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics.hpp"

#include <cstdio>

#include "base/text.hpp"

namespace dp {
namespace {

// Escapes a label's value: backslashes and quotes; the rest is made printable.
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
    explicit Writer(const std::string& step) : step_(escaped(step)) {}

    void metric(const std::string& name, const char* help) {
        name_ = name;
        out_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " gauge\n";
    }
    // With one more label beside the step's, or none.
    void count(size_t number, const char* label = nullptr, const std::string& value = "") {
        add(std::to_string(number), label, value);
    }
    void seconds(int64_t ms, const char* label = nullptr, const std::string& value = "") {
        char text[32];
        std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ms) / 1000);
        add(text, label, value);
    }
    std::string take() { return std::move(out_); }

 private:
    std::string step_;
    std::string name_;
    std::string out_;

    void add(const std::string& number, const char* label, const std::string& value) {
        out_ += name_ + "{step=\"" + step_ + "\"";
        if (label) out_ += std::string(",") + label + "=\"" + escaped(value) + "\"";
        out_ += "} " + number + "\n";
    }
};

// In the order of wire::StepStatus::State.
constexpr const char* kStates[] = {"not_started", "started", "hello", "goodbye", "vanished", "exited"};

}  // namespace

std::string metrics_text(const std::string& step, const wire::StepStatus& status) {
    Writer w(step);
    w.metric("slurm_dp_ranks", "Ranks of the step by state.");
    int state = 0;
    for (const char* name : kStates) {
        w.count(state < status.ranks_by_state_size() ? status.ranks_by_state(state) : 0, "state", name);
        ++state;
    }
    w.metric("slurm_dp_nodes", "Nodes of the step by state.");
    w.count(status.nodes_here(), "state", "here");
    w.count(status.nodes_left(), "state", "left");
    w.count(status.nodes_lost(), "state", "lost");
    w.count(status.nodes_not_connected(), "state", "not_connected");
    w.count(status.nodes_silent(), "state", "silent");
    w.metric("slurm_dp_node_silent_seconds", "How long a node has been silent.");
    for (const auto& node : status.nodes())
        if (node.silent_ms() > 0) w.seconds(node.silent_ms(), "node", node.host());
    w.metric("slurm_dp_start_seconds",
             "When the last rank reached a moment of the start, since the broker started.");
    if (status.has_all_started_ms()) w.seconds(status.all_started_ms(), "moment", "started");
    if (status.has_all_hello_ms()) w.seconds(status.all_hello_ms(), "moment", "hello");
    if (status.has_all_id_ms()) w.seconds(status.all_id_ms(), "moment", "id");
    if (status.has_all_ready_ms()) w.seconds(status.all_ready_ms(), "moment", "ready");
    w.metric("slurm_dp_meetings", "Collectives in progress: barriers, broadcasts and unique ids.");
    w.count(status.meetings_open());
    w.metric("slurm_dp_age_seconds", "Since the broker started.");
    w.seconds(status.age_ms());
    w.metric("slurm_dp_ending", "1 while the step is being ended because of a failure.");
    w.count(status.ending().empty() ? 0 : 1);
    return w.take();
}

}  // namespace dp
