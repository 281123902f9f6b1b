// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report --trace`: the Trace Event Format, which Perfetto and Chrome show
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). A process is a node. A task has two threads, one for
// its phases and one for its life, because Perfetto drops a slice that overlaps another of its thread in part.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "dpctl/report.hpp"

namespace dp {
namespace {

using Json = nlohmann::ordered_json;

size_t phases_thread(size_t task) {
    return 2 * task;
}
size_t life_thread(size_t task) {
    return 2 * task + 1;
}

class TraceWriter {
 public:
    explicit TraceWriter(std::ostream& out) : out_(out) {
        out_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
    }
    void finish() { out_ << "\n]}\n"; }

    void name_process(size_t process, const std::string& name) {
        event({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
        event({{"ph", "M"},
               {"name", "process_sort_index"},
               {"pid", process},
               {"args", {{"sort_index", process}}}});
    }
    void name_thread(size_t process, size_t thread, const std::string& name) {
        event({{"ph", "M"},
               {"name", "thread_name"},
               {"pid", process},
               {"tid", thread},
               {"args", {{"name", name}}}});
        event({{"ph", "M"},
               {"name", "thread_sort_index"},
               {"pid", process},
               {"tid", thread},
               {"args", {{"sort_index", thread}}}});
    }
    void slice(size_t process, size_t thread, const char* what, const char* category, const Interval& time,
               Json args) {
        if (us(time.until) <= us(time.from)) return;
        event({{"ph", "X"},
               {"name", what},
               {"cat", category},
               {"pid", process},
               {"tid", thread},
               {"ts", us(time.from)},
               {"dur", us(time.until) - us(time.from)},
               {"args", std::move(args)}});
    }
    void counter(size_t process, const std::string& name, double at, double value) {
        event({{"ph", "C"}, {"name", name}, {"pid", process}, {"ts", us(at)}, {"args", {{"value", value}}}});
    }
    void instant(size_t process, double at, const std::string& text) {
        event({{"ph", "i"},
               {"s", "p"},
               {"name", text},
               {"cat", "told"},
               {"pid", process},
               {"tid", 0},
               {"ts", us(at)}});
    }
    // From whom a rank waited for, as it came, to the end of the wait.
    void flow(size_t id, const RankPhase& from, const RankPhase& to, size_t first_process) {
        const Json arrow = {{"name", "waited for"}, {"cat", "wait"}, {"id", id}};
        Json begin = arrow, end = arrow;
        begin.update({{"ph", "s"},
                      {"pid", first_process + from.node},
                      {"tid", phases_thread(from.task)},
                      {"ts", us(from.time.from)}});
        // Just before the end: an arrow belongs to the slice that it is in.
        end.update({{"ph", "f"},
                    {"bp", "e"},
                    {"pid", first_process + to.node},
                    {"tid", phases_thread(to.task)},
                    {"ts", us(to.time.until) - 1}});
        event(begin);
        event(end);
    }

 private:
    std::ostream& out_;
    bool is_first_ = true;

    // Whole ones, so that no rounding makes slices overlap.
    static int64_t us(double seconds) { return std::llround(seconds * 1e6); }
    void event(const Json& event) {
        out_ << (is_first_ ? "\n" : ",\n") << event.dump();
        is_first_ = false;
    }
};

// One after the other: a hang may have begun within the start.
void write_lives(const TaskRecord& task, uint32_t first_generation, size_t process, TraceWriter& out) {
    double at = 0;
    const auto write = [&](const char* what, const Interval& time, const RankLife& life) {
        out.slice(process, life_thread(task.local_id), what, "life", {std::max(at, time.from), time.until},
                  {{"generation", life.generation}, {"rank", *life.rank}});
        at = std::max(at, time.until);
    };
    for (const RankLife& life : task.lives) {
        if (!life.rank) continue;
        write(life.generation == first_generation ? "start" : "restart",
              {life.time.from, std::min(life.running_from(), life.time.until)}, life);
        for (const Interval& still : life.still) write("hang", still, life);
    }
}

void write_node(const ReportedRun& reported, size_t node, size_t process, TraceWriter& out) {
    const RecordedRun& run = reported.run;
    out.name_process(process, name_of(run) + ", " + run.nodes[node].host);
    for (const TaskRecord& task : run.nodes[node].tasks) {
        const RankLife* const last = task.last_as_rank();
        const std::string name = last ? "rank " + std::to_string(*last->rank) : "spare";
        out.name_thread(process, phases_thread(task.local_id), name);
        out.name_thread(process, life_thread(task.local_id), name + ": starts, hangs");
        write_lives(task, run.generations.empty() ? 0 : run.generations.front().number, process, out);
    }
    const auto& windows = reported.timeline.nodes[node].windows;
    for (size_t window = 0; window < windows.size(); ++window) {
        const double at = static_cast<double>(window) * reported.timeline.window;
        if (windows[window].memory_mib) out.counter(process, "memory MiB", at, *windows[window].memory_mib);
        for (size_t course = 0; course < kGpuCourses; ++course)
            if (const auto value = windows[window].gpus.of(course))
                out.counter(process, std::string("GPUs ") + kGpuCourseNames[course].name, at, *value);
    }
}

struct Written {
    size_t flows = 0;
    std::optional<int64_t> left_out_from;
};
Try<Written> write_run(const ReportedRun& reported, size_t first_process, size_t first_flow,
                       TraceWriter& out) {
    const RecordedRun& run = reported.run;
    std::map<std::string, size_t> processes;
    for (size_t node = 0; node < run.nodes.size(); ++node) {
        processes.emplace(run.nodes[node].host, first_process + node);
        write_node(reported, node, first_process + node, out);
    }
    for (const RunEvent& event : run.events) out.instant(processes.at(event.host), event.at, event.text);
    const auto details = DP_TRY(read_details(run));
    for (const RankPhase& one : details.phases)
        out.slice(first_process + one.node, phases_thread(one.task),
                  kSpentWords[static_cast<size_t>(one.what)].title, "phase", one.time,
                  {{"step", one.step}, {"rank", one.rank}});
    const auto waits = waits_in(run, details.phases);
    for (size_t i = 0; i < waits.size(); ++i)
        out.flow(first_flow + i, details.phases[waits[i].for_whom], details.phases[waits[i].who],
                 first_process);
    return Written{waits.size(), details.left_out_from};
}

}  // namespace

Try<std::vector<std::string>> write_trace(const Report& report, std::ostream& out) {
    std::vector<std::string> left_out;
    TraceWriter writer(out);
    size_t process = 1, flow = 1;
    for (const ReportedRun& run : report.runs) {
        const auto written = DP_TRY(write_run(run, process, flow, writer));
        flow += written.flows;
        process += run.run.nodes.size();
        if (written.left_out_from)
            left_out.push_back(name_of(run.run) + ": the trace has single phases only of its first " +
                               duration_in_words(static_cast<double>(*written.left_out_from)) + " of " +
                               duration_in_words(run.run.seconds) +
                               "; with later ones it would have more than " + std::to_string(kMostDetails));
    }
    writer.finish();
    return left_out;
}

}  // namespace dp
