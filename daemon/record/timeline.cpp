// SPDX-License-Identifier: Apache-2.0
#include "record/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/text.hpp"
#include "record/file.hpp"
#include "record/sample.hpp"

namespace dp {
namespace {

// A part of a task's time. What its program did while it ran is in the samples.
struct Segment {
    Interval time;
    Spent what = Spent::unlabelled;
    bool is_running = false;
    // Of a running one: the training's count at which its steps were taken again after a restart.
    std::optional<int64_t> repeated_from;
};

class SegmentList {
 public:
    explicit SegmentList(double end) : end_(end) {}
    // From where the last one ended until then.
    void until(double time, Spent what) { add(time, {{}, what, false, {}}); }
    void running_until(double time, std::optional<int64_t> repeated_from) {
        add(time, {{}, Spent::unlabelled, true, repeated_from});
    }
    double at() const { return at_; }
    std::vector<Segment> take() { return std::move(segments_); }

 private:
    double end_;
    double at_ = 0;
    std::vector<Segment> segments_;

    void add(double time, Segment segment) {
        const double until = std::min(time, end_);
        if (until <= at_) return;
        segment.time = {std::exchange(at_, until), until};
        segments_.push_back(segment);
    }
};

// At which count of training steps the next generation that took one went on; by generation.
using Resumed = std::map<uint32_t, int64_t>;
Resumed resumed_after(const RecordedRun& run) {
    Resumed resumed;
    std::optional<int64_t> next = run.requeued_from;
    for (auto one = run.generations.rbegin(); one != run.generations.rend(); ++one) {
        if (next) resumed[one->number] = *next;
        if (one->first_step) next = std::min(next.value_or(*one->first_step - 1), *one->first_step - 1);
    }
    return resumed;
}

void add_life(const RankLife& life, const Resumed& resumed, bool is_first, SegmentList& segments) {
    if (!life.rank) return segments.until(life.time.until, Spent::spare);
    segments.until(life.running_from(), is_first ? Spent::start : Spent::restart);
    std::optional<int64_t> repeated_from;
    if (const auto found = resumed.find(life.generation); found != resumed.end())
        repeated_from = found->second;
    const double until = life.running_until();
    for (const Interval& still : life.still) {
        segments.running_until(std::min(still.from, until), repeated_from);
        segments.until(std::min(still.until, until), Spent::hang);
    }
    segments.running_until(until, repeated_from);
    segments.until(life.time.until, life.is_followed ? Spent::restart : Spent::ended);
}

std::vector<Segment> segments_of(const TaskRecord& task, const NodeRecord& node, const RecordedRun& run,
                                 const Resumed& resumed) {
    SegmentList segments(run.seconds);
    Spent between = Spent::start;
    for (const RankLife& life : task.lives) {
        segments.until(life.time.from, between == Spent::spare && life.rank ? Spent::restart : between);
        // Those of a requeued job do not begin at 0.
        add_life(life, resumed, life.generation == run.generations.front().number, segments);
        between = life.rank ? Spent::restart : Spent::spare;
    }
    const bool is_over = !task.lives.empty() && task.lives.back().rank && !task.lives.back().is_followed;
    segments.until(node.time.until, is_over ? Spent::ended : between);
    segments.until(run.seconds, node.is_complete ? Spent::ended : Spent::unknown);
    return segments.take();
}

// Calls `use(window, share)` with the windows that this time is in, and which share of it each one has.
template <typename Window, typename Use>
void for_each_window(std::vector<Window>& windows, double length, const Interval& time, const Use& use) {
    if (time.length() <= 0) return;
    const auto last = std::min(static_cast<size_t>(time.until / length), windows.size() - 1);
    for (auto i = std::min(static_cast<size_t>(time.from / length), last); i <= last; ++i) {
        const double from = std::max(time.from, static_cast<double>(i) * length);
        // What rounding puts behind the last window is the last one's.
        const double until = i == last ? time.until : static_cast<double>(i + 1) * length;
        if (until > from) use(windows[i], (until - from) / time.length());
    }
}

class TaskFiller {
 public:
    TaskFiller(std::vector<Segment> segments, double window, TaskTimeline& out)
        : segments_(std::move(segments)), window_(window), out_(out) {
        for (const Segment& segment : segments_) spread(segment.time, segment.what, segment.time.length());
    }

    // What a sample says of the time since the last one: seconds by word, and how far the training was before and after.
    void fill(const Interval& time, const SpentTimes& spent, double steps, int64_t step_before,
              int64_t step_after) {
        while (next_ < segments_.size() && segments_[next_].time.until <= time.from) ++next_;
        double running = 0;
        for_each_running(time, [&](const Segment&, const Interval& part) { running += part.length(); });
        if (running <= 0) return;
        const double labelled = std::accumulate(spent.begin(), spent.end(), 0.0);
        const double scale = labelled > running ? running / labelled : 1;
        for_each_running(time, [&](const Segment& segment, const Interval& part) {
            const double share = part.length() / running;
            for (size_t what = 0; what < kSpent; ++what) {
                const double of_it = spent[what] * scale * share;
                if (of_it <= 0) continue;
                const double repeated =
                    share_repeated(segment, static_cast<Spent>(what), step_before, step_after);
                move(part, static_cast<Spent>(what), of_it * (1 - repeated));
                move(part, Spent::repeated, of_it * repeated);
            }
            for_each_window(out_.windows, window_, part, [&](TaskWindow& one, double share_of_part) {
                one.steps += static_cast<float>(steps * share * share_of_part);
            });
        });
    }

 private:
    std::vector<Segment> segments_;
    size_t next_ = 0;  // the first segment that a later sample may be about
    double window_;
    TaskTimeline& out_;

    template <typename Use>
    void for_each_running(const Interval& time, const Use& use) const {
        for (size_t i = next_; i < segments_.size() && segments_[i].time.from < time.until; ++i) {
            const Interval part{std::max(segments_[i].time.from, time.from),
                                std::min(segments_[i].time.until, time.until)};
            if (segments_[i].is_running && part.length() > 0) use(segments_[i], part);
        }
    }

    void spread(const Interval& time, Spent what, double amount) {
        for_each_window(out_.windows, window_, time, [&](TaskWindow& one, double share) {
            one.spent[static_cast<size_t>(what)] += static_cast<float>(amount * share);
        });
        of(out_.ledger, what) += amount;
    }

    void move(const Interval& time, Spent what, double amount) {
        if (amount <= 0) return;
        spread(time, what, amount);
        spread(time, Spent::unlabelled, -amount);
    }

    // Of the steps in which the rank was, those that the next generation took again. A step that a failure broke off is one of them.
    // The checkpoint from which it went on was not for nothing.
    static double share_repeated(const Segment& segment, Spent what, int64_t before, int64_t after) {
        if (!segment.repeated_from) return 0;
        const int64_t from = *segment.repeated_from;
        if (what == Spent::checkpoint && before <= from) return 0;
        if (before >= from) return 1;
        return after <= from ? 0 : static_cast<double>(after - from) / static_cast<double>(after - before);
    }
};

// In seconds.
double sample_interval(const RecordedRun& run) {
    const auto said = run.settings.find("dp-record-interval");
    const double interval = said == run.settings.end() ? 1 : parse_number<double>(said->second).value_or(1);
    return std::isfinite(interval) ? std::clamp(interval, 0.1, 60.0) : 1;
}

class NodeFiller {
 public:
    NodeFiller(const RecordedRun& run, const Resumed& resumed, const NodeRecord& node, double window,
               NodeTimeline& out, ScalarReader& scalars)
        : node_(node),
          window_(window),
          out_(out),
          scalars_(scalars),
          steps_(node.tasks.size()),
          most_between_looks_(2 * std::max(sample_interval(run), 1.0)) {
        for (size_t local = 0; local < node.tasks.size(); ++local)
            fillers_.emplace_back(segments_of(node.tasks[local], node, run, resumed), window,
                                  out.tasks[local]);
    }

    Try<void> fill() {
        RecordFile file = DP_TRY(RecordFile::open(node_.path));
        double before = 0;
        std::optional<double> sampled;  // what a node does goes on from generation to generation
        size_t ranks = 0;
        file.next();  // its Begin
        for (size_t i = 0; i < node_.entries; ++i) {
            const record::Entry* const entry = file.next();
            if (!entry) return fail("it has changed while it was read");
            const double at = node_.offset + static_cast<double>(entry->at_ms()) / 1000;
            if (entry->has_generation()) {
                ranks = std::min(static_cast<size_t>(entry->generation().ranks_size()), fillers_.size());
                std::ranges::fill(steps_, 0);
                scalars_.begin_generation(entry->generation());
                before = at;
            } else if (entry->has_sample()) {
                fill(entry->sample(), {before, at}, ranks);
                scalars_.note(entry->sample(), at);
                fill_node(entry->sample(), {sampled.value_or(before), at});
                fill_gpus(entry->sample(), {gpus_seen_.value_or(before), at});
                before = at;
                sampled = at;
            }
        }
        return {};
    }

 private:
    const NodeRecord& node_;
    double window_;
    NodeTimeline& out_;
    ScalarReader& scalars_;
    std::vector<TaskFiller> fillers_;
    std::vector<int64_t> steps_;  // the training's count, by task
    GpuReader gpus_;
    std::optional<double> gpus_seen_;
    double most_between_looks_;

    void fill(const record::Sample& sample, const Interval& time, size_t ranks) {
        for (size_t local = 0; local < std::min(ranks, tasks_in(sample)); ++local) {
            const int64_t step = steps_[local];
            steps_[local] += std::clamp<int64_t>(of_task(sample.step_count(), local), INT32_MIN, INT32_MAX);
            fillers_[local].fill(time, labelled_times(sample, local), of_task(sample.steps(), local), step,
                                 steps_[local]);
        }
    }

    size_t window_at(double at) const {
        return std::min(static_cast<size_t>(at / window_), out_.windows.size() - 1);
    }

    // `time`: since the last look. That was not long ago, unless they could not be looked at meanwhile, or the job was suspended.
    void fill_gpus(const record::Sample& sample, Interval time) {
        const std::vector<GpuState> now = gpus_.take(sample);
        if (now.empty()) return;
        gpus_seen_ = time.until;
        time.from = std::max(time.from, time.until - most_between_looks_);
        add_to(out_.gpus, now, time.length());
        const size_t last = window_at(time.until);
        for (size_t i = std::min(window_at(time.from) + 1, last); i <= last; ++i)
            out_.windows[i].gpus.add(now);
    }

    void fill_node(const record::Sample& sample, const Interval& time) {
        const size_t now = window_at(time.until);
        for (size_t i = window_at(time.from) + 1; i < now; ++i)
            out_.windows[i].memory_mib = out_.windows[i - 1].memory_mib;
        out_.windows[now].memory_mib = sample.node_memory_mib();
        const auto add = [&](NodeWindow& window, double share) {
            window.sent_kib += static_cast<double>(sample.sent_kib()) * share;
            window.received_kib += static_cast<double>(sample.received_kib()) * share;
        };
        if (time.length() > 0)
            for_each_window(out_.windows, window_, time, add);
        else
            add(out_.windows[now], 1);
    }
};

// Of a window, what of its communication was the exchange itself: as much as the rank had that waited least. Ranks that ran for a part
// of the window only say nothing about that.
void split_communication(Timeline& timeline, size_t window) {
    constexpr auto kCommunication = static_cast<size_t>(Spent::communication);
    constexpr auto kWaiting = static_cast<size_t>(Spent::waiting);
    constexpr Spent kNotRunning[] = {Spent::start, Spent::hang,    Spent::restart,    Spent::ended,
                                     Spent::spare, Spent::unknown, Spent::unlabelled, Spent::repeated};
    std::vector<TaskTimeline*> ran;
    float least = 0;
    for (auto& node : timeline.nodes)
        for (auto& task : node.tasks) {
            const TaskWindow& one = task.windows[window];
            float away = 0;
            for (const Spent what : kNotRunning) away += one.spent[static_cast<size_t>(what)];
            const bool says_nothing_of_it =
                of(task.ledger, Spent::communication) + of(task.ledger, Spent::waiting) <= 0;
            if (away > 0.2F * static_cast<float>(timeline.window) || says_nothing_of_it) continue;
            const float communicated = one.spent[kCommunication];
            least = ran.empty() ? communicated : std::min(least, communicated);
            ran.push_back(&task);
        }
    if (ran.size() < 2) return;
    for (TaskTimeline* task : ran) {
        TaskWindow& one = task->windows[window];
        const float waited = one.spent[kCommunication] - least;
        one.spent[kCommunication] = least;
        one.spent[kWaiting] += waited;
        of(task->ledger, Spent::communication) -= waited;
        of(task->ledger, Spent::waiting) += waited;
    }
}

}  // namespace

Try<Timeline> read_timeline(const RecordedRun& run, size_t runs) {
    Timeline timeline;
    const size_t tasks = std::max<size_t>(run.task_count(), 1);
    const size_t fewest = runs > 1 || tasks > kCells ? kFewestOfMany : kFewestWindows;
    const size_t most = std::clamp(kCells / runs / tasks, fewest, kMostWindows);
    timeline.windows = std::clamp<size_t>(static_cast<size_t>(run.seconds), 1, most);
    timeline.window = std::max(run.seconds, 0.001) / static_cast<double>(timeline.windows);
    timeline.nodes.resize(run.nodes.size());
    const Resumed resumed = resumed_after(run);
    ScalarReader scalars(std::max(kMostPoints / runs, kFewestPoints));
    for (size_t i = 0; i < run.nodes.size(); ++i) {
        NodeTimeline& node = timeline.nodes[i];
        node.windows.resize(timeline.windows);
        node.tasks.resize(run.nodes[i].tasks.size());
        for (auto& task : node.tasks) task.windows.resize(timeline.windows);
        if (const auto filled = NodeFiller(run, resumed, run.nodes[i], timeline.window, node, scalars).fill();
            !filled)
            return fail(printable(run.nodes[i].path) + ": " + filled.error().message);
    }
    timeline.scalars = scalars.take();
    for (size_t window = 0; window < timeline.windows; ++window) split_communication(timeline, window);
    for (auto& node : timeline.nodes)
        for (auto& task : node.tasks)
            for (size_t what = 0; what < kSpent; ++what) {
                // Where all of it was moved elsewhere, rounding may leave less than nothing.
                task.ledger[what] = std::max(task.ledger[what], 0.0);
                timeline.ledger[what] += task.ledger[what];
            }
    timeline.allocated = run.seconds * static_cast<double>(run.task_count());
    return timeline;
}

double running_seconds(const SpentTimes& times) {
    double sum = 0;
    for (const Spent what : {Spent::compute, Spent::communication, Spent::waiting, Spent::load,
                             Spent::checkpoint, Spent::idle, Spent::unlabelled, Spent::hang, Spent::repeated})
        sum += of(times, what);
    return sum;
}

std::optional<double> goodput(const SpentTimes& ledger) {
    constexpr Spent kLabelled[] = {Spent::compute,    Spent::communication, Spent::waiting, Spent::load,
                                   Spent::checkpoint, Spent::idle,          Spent::repeated};
    double labelled = 0;
    for (const Spent what : kLabelled) labelled += of(ledger, what);
    const double all = std::accumulate(ledger.begin(), ledger.end(), 0.0);
    if (labelled <= 0 || all <= 0) return std::nullopt;
    return (of(ledger, Spent::compute) + of(ledger, Spent::communication)) / all;
}

std::string course_of(const TaskTimeline& task) {
    std::string course;
    for (const TaskWindow& window : task.windows)
        course +=
            kSpentWords[static_cast<size_t>(std::ranges::max_element(window.spent) - window.spent.begin())]
                .letter;
    return course;
}

}  // namespace dp
