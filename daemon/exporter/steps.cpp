// SPDX-License-Identifier: Apache-2.0
#include "exporter/steps.hpp"

#include <algorithm>
#include <ranges>
#include <set>
#include <vector>

namespace dp {
namespace {

using Type = MetricsWriter::Type;

std::string labels_of(const std::string& step, const std::string& user) {
    return label("step", step) + "," + label("slurm_job", step.substr(0, step.find('.'))) + "," +
           label("user", user);
}

const char* how_it_ended(const wire::NodeMetrics& last) {
    if (!last.is_last()) return "unknown";
    return last.status().ending().empty() ? "finished" : "failed";
}

}  // namespace

void StepsOfNode::add(Connection connection, const std::string& step, const std::string& user) {
    Step& added = present_[connection];
    added.labels = labels_of(step, user);
    added.user = user;
    ended_.erase(added.labels);
}

size_t StepsOfNode::count() const {
    return static_cast<size_t>(
        std::ranges::count_if(present_, [](const auto& one) { return one.second.is_known; }));
}

void StepsOfNode::note(Connection connection, const wire::NodeMetrics& metrics) {
    const auto step = present_.find(connection);
    if (step == present_.end()) return;
    step->second.metrics = metrics;
    step->second.is_known = true;
    note_startup(step->second, false);
}

// In the cluster each step counts once: where its broker is.
void StepsOfNode::ended(Connection connection, Time now) {
    auto found = present_.extract(connection);
    if (!found || !found.mapped().is_known) return;
    Step& step = found.mapped();
    if (step.metrics.has_status()) {
        note_startup(step, true);
        ++ends_[how_it_ended(step.metrics)];
    }
    step.ended_at = now;
    const auto oldest_first = [](const auto& one) { return one.second.ended_at; };
    const auto is_his = [&](const auto& one) { return one.second.user == step.user; };
    ended_[step.labels] = step;
    if (std::ranges::count_if(ended_, is_his) > static_cast<ptrdiff_t>(kMostEndedOfUser)) {
        auto his = ended_ | std::views::filter(is_his);
        ended_.erase(std::ranges::min_element(his, {}, oldest_first).base());
    }
    forget_old(now);
}

// Programs without a communicator have started once all ranks are there; that nothing more comes is known at their end.
void StepsOfNode::note_startup(Step& step, bool is_over) {
    const wire::StepStatus& status = step.metrics.status();
    // An elected broker knows nothing of the start.
    if (step.has_started || status.totals().restarts() > 0 ||
        !(status.has_all_ready_ms() || (is_over && status.has_all_hello_ms())))
        return;
    step.has_started = true;
    constexpr int64_t kLongest = 86'400'000;
    const int64_t ms = status.has_all_ready_ms() ? status.all_ready_ms() : status.all_hello_ms();
    const double seconds = static_cast<double>(std::clamp<int64_t>(ms, 0, kLongest)) / 1000;
    const auto bound = std::ranges::lower_bound(Histogram::kBounds, seconds);
    ++startup_.counts[static_cast<size_t>(bound - Histogram::kBounds.begin())];
    startup_.sum += seconds;
}

void StepsOfNode::forget_old(Time now) {
    std::erase_if(ended_, [&](const auto& one) { return now - one.second.ended_at > kEndedStays; });
    while (ended_.size() > kMostEnded)
        ended_.erase(
            std::ranges::min_element(ended_, {}, [](const auto& one) { return one.second.ended_at; }));
}

std::string StepsOfNode::page(MetricsFormat format, size_t unreachable, Time now) {
    forget_old(now);
    std::vector<StepMetrics> steps;
    for (const auto& [connection, step] : present_)
        if (step.is_known) steps.push_back({step.labels, &step.metrics});
    // One that runs again has its last run's place.
    std::set<std::string_view> present;
    for (const auto& [connection, step] : present_) present.insert(step.labels);
    for (const auto& [labels, step] : ended_)
        if (!present.contains(labels)) steps.push_back({labels, &step.metrics});
    MetricsWriter out(format);
    write_steps(steps, out);
    write_own(out, unreachable);
    return out.finish();
}

void StepsOfNode::write_own(MetricsWriter& out, size_t unreachable) const {
    out.family("slurm_dp_startup_seconds", Type::histogram,
               "How long steps whose broker is on this node took until all their communicators were ready, "
               "or, without any, all ranks "
               "there.");
    int64_t so_far = 0;
    for (size_t i = 0; i < startup_.counts.size(); ++i) {
        so_far += startup_.counts[i];
        const bool is_last = i == Histogram::kBounds.size();
        out.sample(label("le", is_last ? "+Inf" : number_text(Histogram::kBounds[i])), so_far, "_bucket");
    }
    out.sample("", startup_.sum, "_sum");
    out.sample("", so_far, "_count");
    out.family("slurm_dp_exporter_steps", Type::gauge, "Steps with a world that are on this node.");
    out.sample("", static_cast<int64_t>(count()));
    out.family("slurm_dp_exporter_unreachable_steps", Type::gauge,
               "Steps of this node whose daemons do not answer the exporter.");
    out.sample("", static_cast<int64_t>(unreachable));
    out.family("slurm_dp_exporter_ended_steps_total", Type::counter,
               "Steps that ended whose broker was on this node.");
    for (const auto& [how, count] : ends_) out.sample(label("how", how), count);
    out.family("slurm_dp_exporter_build_info", Type::gauge, "The exporter's version.");
    out.sample(label("version", version_), int64_t{1});
}

}  // namespace dp
