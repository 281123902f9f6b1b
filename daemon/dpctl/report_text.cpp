// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "dpctl/report.hpp"
#include "dpctl/report_nodes.hpp"
#include "engine/table.hpp"

namespace dp {
namespace {

// Of a terminal's width, and of its height.
constexpr size_t kBar = 60, kMostStacksShown = 10, kMostNotFiniteShown = 10;

// A cell is a letter of what has the largest share of it; what has any has one where there is room.
std::string bar_of(const SpentTimes& ledger, double allocated) {
    std::string bar;
    double so_far = 0;
    for (size_t what = 0; what < kSpent && allocated > 0; ++what) {
        so_far += ledger[what];
        const auto until = static_cast<size_t>(so_far / allocated * kBar + 0.5);
        bar.append(std::min(until, kBar) - std::min(bar.size(), until), kSpentWords[what].letter);
    }
    return "[" + bar + std::string(kBar - std::min(bar.size(), kBar), ' ') + "]";
}

std::string ledger_table(const SpentTimes& ledger, double allocated) {
    std::vector<std::vector<std::string>> lines;
    for (size_t what = 0; what < kSpent; ++what)
        if (ledger[what] >= 0.0005)
            lines.push_back({std::string(1, kSpentWords[what].letter), kSpentWords[what].title,
                             percent(ledger[what], allocated), duration_in_words(ledger[what]),
                             kSpentWords[what].meaning});
    return aligned(lines, 4, {false, false, true, true});
}

std::string goodput_text(const SpentTimes& ledger, double allocated) {
    const auto good = goodput(ledger);
    const std::string all = duration_in_words(allocated) + " of task time\n";
    return (good ? fmt::format("  goodput {:.1f} % of {}", 100 * *good, all)
                 : "  goodput not known: no rank has said what it did (dp_phase); " + all) +
           "  " + bar_of(ledger, allocated) + "\n" + ledger_table(ledger, allocated);
}

std::string outcome_in_words(const RecordedRun& run) {
    switch (run.outcome.how) {
        case RecordedRun::How::finished:
            return "finished";
        case RecordedRun::How::failed:
            return "failed: " + run.outcome.reason;
        case RecordedRun::How::unknown:
            break;
    }
    return "end not known: " + run.outcome.reason;
}

std::string heading(const RecordedRun& run) {
    return fmt::format("{} (run {}): {} on {}, {}, {}; {}\n", name_of(run), run.id,
                       plural(run.world_size(), "rank"), run.hosts, utc_time(run.unix_ms),
                       duration_in_words(run.seconds), outcome_in_words(run));
}

std::string at(double seconds) {
    const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
    return fmt::format("{}:{:02}:{:06.3f}", whole / 3600, whole / 60 % 60,
                       std::max(seconds, 0.0) - static_cast<double>(whole / 60 * 60));
}

std::string generations_text(const RecordedRun& run) {
    if (run.generations.size() < 2) return "";
    std::vector<std::vector<std::string>> lines;
    for (const auto& one : run.generations)
        lines.push_back({fmt::format("generation {}", one.number), plural(one.world_size, "rank"),
                         at(one.time.from), duration_in_words(one.time.length()),
                         one.last_step ? fmt::format("to step {}", *one.last_step) : "", one.reason});
    return "\n  generations\n" + aligned(lines, 4, {false, true, true, true});
}

struct Row {
    const NodeRecord* node;
    const TaskRecord* task;
    const TaskTimeline* timeline;
    // Of a step, but for the waits for others; 0: not known.
    double own_step = 0;
};

double share_of(const Row& row, Spent what) {
    return of(row.timeline->ledger, what);
}

std::vector<Row> rows_of(const ReportedRun& one) {
    std::vector<Row> rows;
    for (size_t node = 0; node < one.run.nodes.size(); ++node)
        for (size_t local = 0; local < one.run.nodes[node].tasks.size(); ++local) {
            Row row{&one.run.nodes[node], &one.run.nodes[node].tasks[local],
                    &one.timeline.nodes[node].tasks[local]};
            if (row.task->steps > 0)
                row.own_step = (share_of(row, Spent::compute) + share_of(row, Spent::load) +
                                share_of(row, Spent::checkpoint) + share_of(row, Spent::idle)) /
                               static_cast<double>(row.task->steps);
            rows.push_back(row);
        }
    return rows;
}

std::string tasks_text(const ReportedRun& one) {
    std::vector<Row> rows = rows_of(one);
    const size_t all = rows.size();
    if (all > kMostRows) {
        std::ranges::sort(rows, std::greater(), &Row::own_step);
        rows.resize(kMostRows);
    }
    std::vector<std::vector<std::string>> lines = {{"rank", "host", "steps", "ms/step", "own ms", "compute",
                                                    "communication", "waiting", "load", "CPU", "memory",
                                                    "exit"}};
    for (const Row& row : rows) {
        const RankLife* last = row.task->last_as_rank();
        const double running = running_seconds(row.timeline->ledger);
        const auto milliseconds = [&](double seconds) {
            return seconds > 0 ? fmt::format("{:.3g}", seconds * 1000) : "-";
        };
        lines.push_back(
            {last ? std::to_string(*last->rank) : "-", row.node->host,
             row.task->steps > 0 ? std::to_string(row.task->steps) : "-",
             milliseconds(row.task->steps > 0 ? running / static_cast<double>(row.task->steps) : 0),
             milliseconds(row.own_step), percent(share_of(row, Spent::compute), running),
             percent(share_of(row, Spent::communication), running),
             percent(share_of(row, Spent::waiting), running), percent(share_of(row, Spent::load), running),
             percent(row.task->cpu_seconds, running), fmt::format("{} MiB", row.task->memory_peak_mib),
             last && last->wait_status ? (*last->wait_status == 0 ? "0" : describe_status(*last->wait_status))
                                       : "-"});
    }
    return "\n  ranks" +
           (all > kMostRows
                ? fmt::format(", the {} of {} whose own time for a step is longest", kMostRows, all)
                : "") +
           "\n" +
           aligned(lines, 4, {true, false, true, true, true, true, true, true, true, true, true, false});
}

// Where one is awaited at the start, it is the last of a moment.
std::string start_text(const RecordedRun& run) {
    struct Moment {
        const char* name;
        std::optional<double> RankLife::*when;
    };
    constexpr Moment kMoments[] = {{"started", &RankLife::started},
                                   {"hello", &RankLife::hello},
                                   {"communicator ready", &RankLife::ready},
                                   {"first phase", &RankLife::first_phase}};
    std::vector<std::vector<std::string>> lines;
    for (const Moment& moment : kMoments) {
        std::vector<std::pair<double, std::string>> all;
        for (const auto& node : run.nodes)
            for (const auto& task : node.tasks)
                if (const RankLife* first = task.first_as_rank(); first && first->*moment.when)
                    all.emplace_back(*(first->*moment.when),
                                     fmt::format("rank {} on {}", *first->rank, node.host));
        if (all.empty()) continue;
        std::ranges::sort(all);
        lines.push_back({moment.name, "median " + duration_in_words(all[all.size() / 2].first),
                         "last " + duration_in_words(all.back().first), all.back().second});
    }
    return lines.empty() ? "" : "\n  start-up, since the first daemon started\n" + aligned(lines, 4);
}

// Of equal calls in a row only the first.
std::string calls_text(const CallsOfHang& calls) {
    std::string out;
    const size_t shown = std::min(calls.stacks.size(), kMostStacksShown);
    for (const RecordedCalls& stack : std::span(calls.stacks).first(shown)) {
        out += "        " + name_ranks(stack.ranks) + (stack.has_culprit ? ", the cause" : "") + "\n";
        for (auto frame = stack.frames.begin(); frame != stack.frames.end();) {
            const auto next =
                std::find_if(frame, stack.frames.end(), [&](const auto& one) { return one != *frame; });
            out += "          " + in_words(*frame) +
                   (next - frame > 1 ? fmt::format(", {} times", next - frame) : "") + "\n";
            frame = next;
        }
        if (!stack.incomplete.empty()) out += "          (" + stack.incomplete + ")\n";
    }
    if (calls.stacks.size() > shown)
        out += "        and " + plural(calls.stacks.size() - shown, "other stack") + " (--json, --html)\n";
    if (calls.ranks_left_out > 0)
        out += "        the calls of " + plural(calls.ranks_left_out, "other rank") + " are not recorded\n";
    return out;
}

std::string events_text(const RecordedRun& run) {
    if (run.events.empty()) return "";
    std::vector<std::vector<std::string>> lines;
    for (const auto& event : run.events) lines.push_back({at(event.at), event.host, event.text});
    const std::string table = aligned(lines, 4);
    std::string out = "\n  events\n";
    size_t from = 0;
    for (const auto& event : run.events) {
        const size_t until = table.find('\n', from) + 1;
        out += table.substr(from, until - from) + calls_text(event.calls);
        from = until;
    }
    return out +
           (run.events_left_out > 0 ? "    and " + std::to_string(run.events_left_out) + " more\n" : "");
}

// What a program logs has as many digits as a float.
std::string point_in_words(const ScalarPoint& point) {
    return (std::isfinite(point.value) ? fmt::format("{:.6g}", point.value)
                                       : std::string(word_of_not_finite(point.value))) +
           (point.step > 0 ? fmt::format(" at step {}", point.step) : " at " + at(point.at));
}

std::string scalars_text(const Scalars& scalars) {
    if (scalars.series.empty()) return "";
    std::vector<std::vector<std::string>> lines = {{"name", "rank", "first", "last", "lowest", "highest"}};
    for (const ScalarSeries& one : scalars.series)
        lines.push_back({one.name, std::to_string(one.courses.front().rank), point_in_words(one.first),
                         point_in_words(one.last), one.lowest ? point_in_words(*one.lowest) : "-",
                         one.highest ? point_in_words(*one.highest) : "-"});
    std::string out = "\n  scalars, of the lowest rank that logs each\n" + aligned(lines, 4, {false, true});
    if (scalars.left_out > 0)
        out += fmt::format("    and {} of more than {} names\n", plural(scalars.left_out, "value"),
                           kMostScalarNames);
    const size_t shown = std::min(scalars.not_finite.size(), kMostNotFiniteShown);
    for (const NotFinite& one : std::span(scalars.not_finite).first(shown))
        out += fmt::format("    rank {}: {} is {}\n", one.rank, one.name, point_in_words(one.point));
    const size_t more = scalars.not_finite.size() - shown + scalars.not_finite_left_out;
    if (more > 0) out += fmt::format("    and {} that are NaN or infinite\n", plural(more, "more value"));
    return out;
}

std::string problems_text(const Report& report) {
    std::string out;
    for (const auto& problem : report.problems) out += "problem: " + problem + "\n";
    return out.empty() ? "" : out + "\n";
}

std::string jobs_text(const Report& report) {
    std::string out;
    for (const JobLedger& job : ledgers_of_jobs(report))
        out += fmt::format("\njob {}, its {} runs together\n", job.job_id, job.runs) +
               goodput_text(job.ledger, job.allocated);
    return out;
}

}  // namespace

std::string duration_in_words(double seconds) {
    const double some = std::max(seconds, 0.0);
    const auto whole = static_cast<int64_t>(some + 0.5);
    if (some < 0.9995) return fmt::format("{:.0f} ms", some * 1000);
    if (some < 59.95) return fmt::format("{:.1f} s", some);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
    return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string utc_time(int64_t unix_ms) {
    // What fits a date of four digits.
    const int64_t some = std::clamp<int64_t>(unix_ms, 0, 253'402'300'799'999);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(some / 1000)),
                       some % 1000);
}

std::string name_of(const RecordedRun& run) {
    return run.job_id == 0 ? fmt::format("launch {}", run.step_id)
                           : fmt::format("step {}.{}", run.job_id, run.step_id);
}

std::vector<JobLedger> ledgers_of_jobs(const Report& report) {
    std::map<uint32_t, JobLedger> jobs;
    for (const auto& one : report.runs) {
        if (one.run.job_id == 0) continue;
        JobLedger& job = jobs[one.run.job_id];
        job.job_id = one.run.job_id;
        ++job.runs;
        job.allocated += one.timeline.allocated;
        for (size_t what = 0; what < kSpent; ++what) job.ledger[what] += one.timeline.ledger[what];
    }
    std::vector<JobLedger> out;
    for (const auto& [id, job] : jobs)
        if (job.runs > 1) out.push_back(job);
    return out;
}

std::string ledger_text(const Report& report) {
    std::string out = problems_text(report);
    for (const auto& one : report.runs)
        out += (&one == &report.runs.front() ? "" : "\n") + heading(one.run) +
               goodput_text(one.timeline.ledger, one.timeline.allocated);
    return out + jobs_text(report);
}

std::string report_text(const Report& report) {
    std::string out = problems_text(report);
    for (const auto& one : report.runs)
        out += (&one == &report.runs.front() ? "" : "\n") + heading(one.run) +
               goodput_text(one.timeline.ledger, one.timeline.allocated) + generations_text(one.run) +
               preflight_text(one.run) + start_text(one.run) + tasks_text(one) +
               scalars_text(one.timeline.scalars) + gpus_text(one) + transports_text(one.run) +
               environment_text(one.run) + events_text(one.run);
    return out + jobs_text(report);
}

}  // namespace dp
