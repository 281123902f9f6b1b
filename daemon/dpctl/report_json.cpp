// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/wait_status.hpp"
#include "dpctl/report.hpp"

namespace dp {

extern const char* const kReportPage;  // report_page.html

namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) {
    return std::round(value * 1000) / 1000 + 0.0;  // not -0
}

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

Json json_of(const SpentTimes& ledger) {
    Json out = Json::object();
    for (size_t what = 0; what < kSpent; ++what) out[kSpentWords[what].name] = rounded(ledger[what]);
    return out;
}

Json goodput_json(const SpentTimes& ledger) {
    const auto good = goodput(ledger);
    return good ? Json(rounded(*good)) : Json();
}

SpentTimes times_of(const TaskWindow& window) {
    SpentTimes times{};
    for (size_t what = 0; what < kSpent; ++what) times[what] = static_cast<double>(window.spent[what]);
    return times;
}

// The training steps in a window that one task took less than half of say nothing about a step's time.
Json step_ms_course(const TaskTimeline& timeline) {
    Json out = Json::array();
    for (const TaskWindow& window : timeline.windows)
        out.push_back(window.steps < 0.5F ? Json()
                                          : Json(std::round(running_seconds(times_of(window)) /
                                                            static_cast<double>(window.steps) * 1e4) /
                                                 10));
    return out;
}

Json moments_of(const RankLife& life) {
    Json out = Json::object();
    const std::pair<const char*, const std::optional<double>*> moments[] = {
        {"started", &life.started},
        {"hello", &life.hello},
        {"ready", &life.ready},
        {"first_phase", &life.first_phase}};
    for (const auto& [name, when] : moments)
        if (*when) out[name] = rounded(**when);
    return out;
}

Json json_of(const TaskRecord& task, const NodeRecord& node, const TaskTimeline& timeline) {
    const RankLife *const first = task.first_as_rank(), *const last = task.last_as_rank();
    const double ran = running_seconds(timeline.ledger);
    Json out;
    out["host"] = node.host;
    out["local_id"] = task.local_id;
    out["rank"] = last ? Json(*last->rank) : Json();
    out["exit_code"] = last && last->wait_status && WIFEXITED(*last->wait_status)
                           ? Json(WEXITSTATUS(*last->wait_status))
                           : Json();
    out["signal"] = last && last->wait_status && WIFSIGNALED(*last->wait_status)
                        ? Json(WTERMSIG(*last->wait_status))
                        : Json();
    out["exit"] = last && last->wait_status ? describe_status(*last->wait_status) : "";
    out["moments"] = first ? moments_of(*first) : Json::object();
    out["steps"] = task.steps;
    out["step_ms"] = task.steps > 0 ? Json(rounded(ran * 1000 / static_cast<double>(task.steps))) : Json();
    out["cpu_share"] = ran > 0 ? Json(rounded(task.cpu_seconds / ran)) : Json();
    out["memory_peak_mib"] = task.memory_peak_mib > 0 ? Json(task.memory_peak_mib) : Json();
    out["ledger"] = json_of(timeline.ledger);
    out["course"] = course_of(timeline);
    out["step_ms_course"] = step_ms_course(timeline);
    return out;
}

Json json_of(const RecordedPreflight& preflight) {
    Json out = {{"seconds", rounded(preflight.seconds)},
                {"verdict", in_words(preflight.verdict)},
                {"findings", preflight.findings},
                {"measures", Json::array()}};
    for (const auto& measure : preflight.measures)
        out["measures"].push_back(
            {{"name", measure.name}, {"value", rounded(measure.value)}, {"unit", measure.unit}});
    return out;
}

Json json_of(const CallsOfHang& calls) {
    Json out = Json::array();
    for (const auto& stack : calls.stacks) {
        Json frames = Json::array();
        for (const auto& frame : stack.frames)
            frames.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
        out.push_back({{"ranks", stack.ranks},
                       {"is_cause", stack.has_culprit},
                       {"frames", std::move(frames)},
                       {"incomplete", stack.incomplete}});
    }
    return out;
}

Json json_of(const RunEvent& event) {
    Json out = {{"at", rounded(event.at)}, {"host", event.host}, {"text", event.text}};
    if (event.calls.stacks.empty()) return out;
    out["stacks"] = json_of(event.calls);
    out["ranks_left_out"] = event.calls.ranks_left_out;
    return out;
}

Json json_of(const RecordedEnvironment& environment) {
    Json ranks = Json::array();
    for (const auto& [rank, own] : environment.ranks) ranks.push_back({{"rank", rank}, {"own", own}});
    return {{"common", environment.common}, {"ranks", std::move(ranks)}};
}

Json json_of(const RecordedTransports& transports) {
    Json out = Json::array();
    for (const auto& pair : transports.pairs)
        out.push_back({{"from", pair.from}, {"to", pair.to}, {"via", pair.via}, {"channels", pair.channels}});
    return out;
}

// JSON has no number for those that are not finite.
Json number_of(double value) {
    if (std::isfinite(value)) return value;
    return word_of_not_finite(value);
}

Json json_of(const ScalarPoint& point) {
    return {{"at", rounded(point.at)}, {"step", point.step}, {"value", number_of(point.value)}};
}

Json json_of(const ScalarSeries& series) {
    const auto or_none = [](const auto& point) { return point ? json_of(*point) : Json(); };
    Json out = {{"name", series.name},
                {"first", json_of(series.first)},
                {"last", json_of(series.last)},
                {"lowest", or_none(series.lowest)},
                {"highest", or_none(series.highest)},
                {"courses", Json::array()}};
    for (const auto& course : series.courses) {
        Json at = Json::array(), steps = Json::array(), values = Json::array();
        for (const ScalarPoint& point : course.points) {
            at.push_back(rounded(point.at));
            steps.push_back(point.step);
            values.push_back(number_of(point.value));
        }
        out["courses"].push_back({{"generation", course.generation},
                                  {"rank", course.rank},
                                  {"at", std::move(at)},
                                  {"step", std::move(steps)},
                                  {"value", std::move(values)}});
    }
    return out;
}

Json json_of(const Scalars& scalars) {
    Json out = {{"series", Json::array()},
                {"left_out", scalars.left_out},
                {"not_finite", Json::array()},
                {"not_finite_left_out", scalars.not_finite_left_out}};
    for (const ScalarSeries& one : scalars.series) out["series"].push_back(json_of(one));
    for (const NotFinite& one : scalars.not_finite) {
        Json told = {{"name", one.name}, {"rank", one.rank}, {"generation", one.generation}};
        told.update(json_of(one.point));
        out["not_finite"].push_back(std::move(told));
    }
    return out;
}

Json json_of(const GpuSummary& gpu) {
    Json out = {{"tile", gpu.tile}, {"memory_total_mib", gpu.memory_mib}};
    for (size_t i = 0; i < kGpuCourses; ++i) {
        const GpuSummary::Course& course = gpu.courses[i];
        const auto mean = course.mean();
        out[kGpuCourseNames[i].name] =
            mean ? Json({{"mean", rounded(*mean)}, {"lowest", course.lowest}, {"highest", course.highest}})
                 : Json();
    }
    out["slowed_seconds"] = rounded(gpu.slowed_seconds);
    out["slowed_by"] = slowed_in_words(gpu.slowed_reasons);
    return out;
}

Json gpu_courses(const NodeTimeline& timeline) {
    Json out = Json::object();
    for (size_t i = 0; i < kGpuCourses; ++i) {
        Json& course = out[kGpuCourseNames[i].name] = Json::array();
        for (const NodeWindow& one : timeline.windows) {
            const auto value = one.gpus.of(i);
            course.push_back(value ? Json(std::round(*value)) : Json());
        }
    }
    return out;
}

Json json_of(const NodeRecord& node, const NodeTimeline& timeline, double window) {
    Json out = {{"node_rank", node.node_rank},
                {"host", node.host},
                {"from", rounded(node.time.from)},
                {"until", rounded(node.time.until)},
                {"is_complete", node.is_complete}};
    for (const char* list : {"memory_mib", "sent_kib_s", "received_kib_s"}) out[list] = Json::array();
    for (const NodeWindow& one : timeline.windows) {
        out["memory_mib"].push_back(or_null(one.memory_mib));
        out["sent_kib_s"].push_back(std::round(one.sent_kib / window));
        out["received_kib_s"].push_back(std::round(one.received_kib / window));
    }
    if (node.preflight) out["preflight"] = json_of(*node.preflight);
    if (!timeline.gpus.empty()) {
        out["gpus"] = Json::array();
        for (const GpuSummary& gpu : timeline.gpus) out["gpus"].push_back(json_of(gpu));
        out["gpu_courses"] = gpu_courses(timeline);
    }
    return out;
}

const char* word_of(RecordedRun::How how) {
    return how == RecordedRun::How::finished ? "finished"
           : how == RecordedRun::How::failed ? "failed"
                                             : "unknown";
}

Json summary_of(const ReportedRun& one) {
    const RecordedRun& run = one.run;
    Json out;
    out["run"] = run.id;
    out["job"] = run.job_id == 0 ? Json() : Json(run.job_id);
    out["step"] = run.job_id == 0 ? Json() : Json(run.step_id);
    out["slurm_dp"] = run.slurm_dp;
    out["began"] = utc_time(run.unix_ms);
    out["seconds"] = rounded(run.seconds);
    out["outcome"] = {{"how", word_of(run.outcome.how)}, {"reason", run.outcome.reason}};
    out["world_size"] = run.world_size();
    out["hosts"] = run.hosts;
    out["settings"] = run.settings;
    out["goodput"] = goodput_json(one.timeline.ledger);
    out["allocated"] = rounded(one.timeline.allocated);
    out["ledger"] = json_of(one.timeline.ledger);
    return out;
}

Json json_of(const ReportedRun& one) {
    const RecordedRun& run = one.run;
    Json out = summary_of(one);
    out["window"] = one.timeline.window;
    out["windows"] = one.timeline.windows;
    out["generations"] = Json::array();
    for (const auto& generation : run.generations)
        out["generations"].push_back({{"generation", generation.number},
                                      {"world_size", generation.world_size},
                                      {"from", rounded(generation.time.from)},
                                      {"until", rounded(generation.time.until)},
                                      {"first_step", or_null(generation.first_step)},
                                      {"last_step", or_null(generation.last_step)},
                                      {"reason", generation.reason}});
    out["nodes"] = Json::array();
    out["tasks"] = Json::array();
    for (size_t i = 0; i < run.nodes.size(); ++i) {
        const NodeTimeline& timeline = one.timeline.nodes[i];
        out["nodes"].push_back(json_of(run.nodes[i], timeline, one.timeline.window));
        for (size_t local = 0; local < run.nodes[i].tasks.size(); ++local)
            out["tasks"].push_back(json_of(run.nodes[i].tasks[local], run.nodes[i], timeline.tasks[local]));
    }
    out["events"] = Json::array();
    for (const auto& event : run.events) out["events"].push_back(json_of(event));
    out["events_left_out"] = run.events_left_out;
    out["transports"] = json_of(run.transports);
    out["transports_left_out"] = run.transports.left_out;
    out["environment"] = json_of(run.environment);
    out["scalars"] = json_of(one.timeline.scalars);
    return out;
}

Json whole(const Report& report, Json (*of)(const ReportedRun&)) {
    Json out = {
        {"version", 1}, {"problems", report.problems}, {"runs", Json::array()}, {"jobs", Json::array()}};
    for (const auto& one : report.runs) out["runs"].push_back(of(one));
    for (const auto& job : ledgers_of_jobs(report))
        out["jobs"].push_back({{"job", job.job_id},
                               {"runs", job.runs},
                               {"goodput", goodput_json(job.ledger)},
                               {"allocated", rounded(job.allocated)},
                               {"ledger", json_of(job.ledger)}});
    return out;
}

}  // namespace

std::string report_json(const Report& report) {
    return whole(report, json_of).dump() + "\n";
}

std::string ledger_json(const Report& report) {
    return whole(report, summary_of).dump(2) + "\n";
}

// Within a <script> element only "</script" and "<!--" mean anything to HTML
// (https://html.spec.whatwg.org/multipage/scripting.html#restrictions-for-contents-of-script-elements): none is left.
std::string report_page(const Report& report) {
    constexpr std::string_view kPlace = "@REPORT@";
    std::string data;
    for (const char c : whole(report, json_of).dump()) data += c == '<' ? "\\u003c" : std::string(1, c);
    std::string page = kReportPage;
    return page.replace(page.find(kPlace), kPlace.size(), data);
}

}  // namespace dp
