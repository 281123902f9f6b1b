// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "record/spent.hpp"

namespace dp {
namespace {

using Type = MetricsWriter::Type;

// In the order of wire::StepStatus::State.
constexpr const char* kStates[] = {"not_started", "started", "hello", "goodbye", "vanished", "exited"};

double seconds(int64_t ms) {
    return static_cast<double>(ms) / 1000;
}

// The samples of one step in the present family.
class OneStep {
 public:
    OneStep(const StepMetrics& step, MetricsWriter& out) : step_(step), out_(out) {}

    template <typename Number>
    void sample(Number value) const {
        out_.sample(step_.labels, value);
    }
    template <typename Number>
    void sample(std::string_view name, std::string_view text, Number value) const {
        out_.sample(step_.labels + "," + label(name, text), value);
    }

 private:
    const StepMetrics& step_;
    MetricsWriter& out_;
};

// What the step's broker knows.
struct StatusFamily {
    const char* name;
    Type type;
    const char* help;
    void (*write)(const wire::StepStatus&, const OneStep&);
};
constexpr StatusFamily kOfStatus[] = {
    {"slurm_dp_ranks", Type::gauge, "Ranks of the step by state.",
     [](const wire::StepStatus& status, const OneStep& to) {
         int state = 0;
         for (const char* name : kStates) {
             to.sample("state", name,
                       int64_t{state < status.ranks_by_state_size() ? status.ranks_by_state(state) : 0});
             ++state;
         }
     }},
    {"slurm_dp_nodes", Type::gauge, "Nodes of the step by state.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample("state", "here", int64_t{status.nodes_here()});
         to.sample("state", "left", int64_t{status.nodes_left()});
         to.sample("state", "lost", int64_t{status.nodes_lost()});
         to.sample("state", "not_connected", int64_t{status.nodes_not_connected()});
         to.sample("state", "silent", int64_t{status.nodes_silent()});
     }},
    {"slurm_dp_node_silent_seconds", Type::gauge, "How long a node has been silent.",
     [](const wire::StepStatus& status, const OneStep& to) {
         int named = 0;
         for (const auto& node : status.nodes())
             if (node.silent_ms() > 0 && named++ < kMostSilentNamed)
                 to.sample("node", node.host(), seconds(node.silent_ms()));
     }},
    {"slurm_dp_start_seconds", Type::gauge,
     "When the last rank reached a moment of the start, since the broker started.",
     [](const wire::StepStatus& status, const OneStep& to) {
         if (status.has_all_started_ms()) to.sample("moment", "started", seconds(status.all_started_ms()));
         if (status.has_all_hello_ms()) to.sample("moment", "hello", seconds(status.all_hello_ms()));
         if (status.has_all_id_ms()) to.sample("moment", "id", seconds(status.all_id_ms()));
         if (status.has_all_ready_ms()) to.sample("moment", "ready", seconds(status.all_ready_ms()));
     }},
    {"slurm_dp_meetings", Type::gauge, "Collectives in progress: barriers, broadcasts and unique ids.",
     [](const wire::StepStatus& status, const OneStep& to) { to.sample(int64_t{status.meetings_open()}); }},
    {"slurm_dp_age_seconds", Type::gauge, "Since the broker started.",
     [](const wire::StepStatus& status, const OneStep& to) { to.sample(seconds(status.age_ms())); }},
    {"slurm_dp_ending", Type::gauge, "1 while the step is being ended because of a failure.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample(int64_t{status.ending().empty() ? 0 : 1});
     }},
    {"slurm_dp_generation", Type::gauge, "The world's present generation.",
     [](const wire::StepStatus& status, const OneStep& to) { to.sample(int64_t{status.generation()}); }},
    {"slurm_dp_slow_ranks", Type::gauge, "Ranks that make the others wait (--dp-slow).",
     [](const wire::StepStatus& status, const OneStep& to) { to.sample(int64_t{status.slow_ranks()}); }},
    {"slurm_dp_deaths_total", Type::counter,
     "Deaths that ended ranks or their generation: a rank's exit code, a signal, a lost node, or other ones.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample("kind", "exit", int64_t{status.totals().exits()});
         to.sample("kind", "signal", int64_t{status.totals().signals()});
         to.sample("kind", "node", int64_t{status.totals().lost_nodes()});
         to.sample("kind", "other", int64_t{status.totals().other_deaths()});
     }},
    {"slurm_dp_restarts_total", Type::counter, "Generations that began after a failure.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample(int64_t{status.totals().restarts()});
     }},
    {"slurm_dp_silences_total", Type::counter, "How often a node was silent for a moment.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample(int64_t{status.totals().silences()});
     }},
    {"slurm_dp_hangs_total", Type::counter, "How often the step made no progress (--dp-hang-timeout).",
     [](const wire::StepStatus& status, const OneStep& to) { to.sample(int64_t{status.totals().hangs()}); }},
    {"slurm_dp_hang_seconds_total", Type::counter, "For how long.",
     [](const wire::StepStatus& status, const OneStep& to) {
         to.sample(seconds(status.totals().hang_ms()));
     }},
};

}  // namespace

void MetricsWriter::family(std::string_view name, Type type, std::string_view help) {
    constexpr std::string_view kTypes[] = {"gauge", "counter", "histogram"}, kTotal = "_total";
    name_ = name;
    std::string_view of_family = name;
    if (format_ == MetricsFormat::openmetrics && type == Type::counter && name.ends_with(kTotal))
        of_family.remove_suffix(kTotal.size());
    out_ +=
        fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", of_family, help, kTypes[static_cast<size_t>(type)]);
}

void MetricsWriter::sample(const std::string& labels, int64_t value, std::string_view suffix) {
    write(labels, std::to_string(value), suffix);
}

void MetricsWriter::sample(const std::string& labels, double value, std::string_view suffix) {
    write(labels, fmt::format("{:.3f}", value), suffix);
}

void MetricsWriter::write(const std::string& labels, std::string_view value, std::string_view suffix) {
    out_ += name_;
    out_ += suffix;
    if (!labels.empty()) out_ += "{" + labels + "}";
    out_ += ' ';
    out_ += value;
    out_ += '\n';
}

std::string MetricsWriter::finish() {
    if (format_ == MetricsFormat::openmetrics) out_ += "# EOF\n";
    return std::move(out_);
}

std::string number_text(double value) {
    return fmt::format("{}", value);
}

std::string label(std::string_view name, std::string_view value) {
    std::string out = std::string(name) + "=\"";
    for (const char c : printable(value)) {
        if (c == '\\' || c == '"') out += '\\';
        out += c;
    }
    return out + "\"";
}

void write_steps(std::span<const StepMetrics> steps, MetricsWriter& out) {
    for (const StatusFamily& family : kOfStatus) {
        out.family(family.name, family.type, family.help);
        for (const StepMetrics& step : steps)
            if (step.node->has_status()) family.write(step.node->status(), {step, out});
    }
    out.family("slurm_dp_rank_seconds_total", Type::counter,
               "What the time of this node's tasks went to, by the words of dpctl ledger.");
    for (const StepMetrics& step : steps)
        for (size_t what = 0; what < kSpent; ++what)
            if (static_cast<int>(what) < step.node->spent_ms_size() &&
                step.node->spent_ms(static_cast<int>(what)) > 0)
                OneStep(step, out).sample("spent", kSpentWords[what].name,
                                          seconds(step.node->spent_ms(static_cast<int>(what))));
    out.family("slurm_dp_tiles", Type::gauge, "Tiles of this node that the step's ranks have.");
    for (const StepMetrics& step : steps)
        if (step.node->tiles() > 0) OneStep(step, out).sample(int64_t{step.node->tiles()});
}

}  // namespace dp
