// SPDX-License-Identifier: Apache-2.0
#include "record/details.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "base/text.hpp"
#include "record/file.hpp"

namespace dp {
namespace {

constexpr double kUsPerSecond = 1e6;
// Clocks that were set by a generation's start do not differ by more.
constexpr double kMostClockError = 1;

Try<void> for_each_entry(const NodeRecord& node, const auto& use) {
    auto file = RecordFile::open(node.path);
    if (!file) return fail(printable(node.path) + ": " + file.error().message);
    file->next();  // its Begin
    for (size_t i = 0; i < node.entries; ++i) {
        const record::Entry* const entry = file->next();
        if (!entry) return fail(printable(node.path) + ": it has changed while it was read");
        use(*entry);
    }
    return {};
}

size_t count_of(const record::Sample::Detail& detail) {
    return std::min(static_cast<size_t>(detail.length_us_size()), detail.step_and_phase().size());
}

// The second of the run in which all nodes have such an entry.
int64_t second_of(const NodeRecord& node, const record::Entry& entry) {
    return static_cast<int64_t>(std::floor(node.offset + static_cast<double>(entry.at_ms()) / 1000));
}

// The first second that would make them more than `most`. It is one of the first most + 1 that have any.
Try<std::optional<int64_t>> end_of_most(const RecordedRun& run, size_t most) {
    std::map<int64_t, size_t> counts;
    for (const NodeRecord& node : run.nodes)
        DP_TRY(for_each_entry(node, [&](const record::Entry& entry) {
            for (const auto& detail : entry.sample().details())
                if (const size_t count = count_of(detail); count > 0) counts[second_of(node, entry)] += count;
            if (counts.size() > most + 1) counts.erase(std::prev(counts.end()));
        }));
    size_t sum = 0;
    for (const auto& [second, count] : counts)
        if ((sum += count) > most) return second;
    return std::nullopt;
}

class NodePhases {
 public:
    NodePhases(const RecordedRun& run, size_t node, std::vector<RankPhase>& out)
        : node_(run.nodes[node]),
          number_(static_cast<uint32_t>(node)),
          tasks_(node_.tasks.size()),
          out_(out) {}

    Try<void> read(std::optional<int64_t> end) {
        return for_each_entry(node_, [&](const record::Entry& entry) {
            if (entry.has_generation()) begin_generation(entry.generation().number());
            if (end && second_of(node_, entry) >= *end) return;
            for (const auto& detail : entry.sample().details()) add(detail, entry.at_ms() * 1000);
        });
    }

 private:
    struct Task {
        int64_t ended_us = -1;  // its last phase
        uint64_t step = 0;
        std::optional<uint32_t> next_round;
    };
    const NodeRecord& node_;
    uint32_t number_;
    std::vector<Task> tasks_;
    std::vector<RankPhase>& out_;
    std::optional<uint32_t> generation_;

    void begin_generation(uint32_t number) {
        generation_ = number;
        for (Task& task : tasks_) task.next_round.reset();
    }

    // Whatever is in it, no phase overlaps the one before, or ends later than its entry's millisecond.
    void add(const record::Sample::Detail& detail, int64_t at_us) {
        const size_t count = count_of(detail);
        if (count == 0 || detail.task() >= tasks_.size() || !generation_) return;
        const auto& lives = node_.tasks[detail.task()].lives;
        const auto life = std::ranges::lower_bound(lives, *generation_, {}, &RankLife::generation);
        if (life == lives.end() || life->generation != *generation_ || !life->rank) return;
        Task& task = tasks_[detail.task()];
        const int64_t latest_us = at_us + 1000;
        int64_t from_us = at_us - std::clamp<int64_t>(detail.before_us(), -1000, at_us);
        uint64_t step = detail.step();
        for (size_t i = 0; i < count; ++i) {
            const auto byte = static_cast<unsigned char>(detail.step_and_phase()[i]);
            step += byte >> 3;
            const auto longest = static_cast<uint64_t>(latest_us - from_us);
            const int64_t until_us = from_us + static_cast<int64_t>(std::min<uint64_t>(
                                                   detail.length_us(static_cast<int>(i)), longest));
            const int64_t begin_us = std::max(from_us, task.ended_us);
            const Spent what = (byte & 7) < kPhases ? kSpentInPhase[byte & 7] : Spent::unlabelled;
            const auto round = round_of(task, from_us, step, what);
            if (until_us > begin_us && what != Spent::unlabelled)
                out_.push_back({number_,
                                detail.task(),
                                *life->rank,
                                *generation_,
                                {time_of(begin_us), time_of(until_us)},
                                what,
                                step,
                                round});
            task.ended_us = std::max(task.ended_us, until_us);
            from_us = until_us;
        }
    }

    // Counted from where a step is seen to begin: what came before, or was lost in a gap, nobody knows.
    static std::optional<uint32_t> round_of(Task& task, int64_t from_us, uint64_t step, Spent what) {
        if (from_us != task.ended_us)
            task.next_round.reset();
        else if (step != task.step)
            task.next_round = 0;
        task.step = step;
        if (what != Spent::communication || !task.next_round) return std::nullopt;
        return (*task.next_round)++;
    }

    double time_of(int64_t us) const { return node_.offset + static_cast<double>(us) / kUsPerSecond; }
};

// Calls `use(members)` with each communication of all ranks of a generation, by rank.
void for_each_round(const RecordedRun& run, const std::vector<RankPhase>& phases, const auto& use) {
    std::map<uint32_t, size_t> world_sizes;
    for (const GenerationOfRun& one : run.generations) world_sizes[one.number] = one.world_size;
    const auto round_of = [&](size_t i) {
        return std::tuple(phases[i].generation, phases[i].step, *phases[i].round);
    };
    const auto rank_of = [&](size_t i) { return phases[i].rank; };
    std::vector<size_t> all;
    for (size_t i = 0; i < phases.size(); ++i)
        if (phases[i].round) all.push_back(i);
    std::ranges::sort(all, {}, [&](size_t i) { return std::tuple(round_of(i), rank_of(i)); });
    for (auto from = all.begin(); from != all.end();) {
        const auto until =
            std::find_if(from, all.end(), [&](size_t i) { return round_of(i) != round_of(*from); });
        const std::span<const size_t> members(from, until);
        const bool are_distinct = std::ranges::adjacent_find(members, {}, rank_of) == members.end();
        if (are_distinct && members.size() == world_sizes[phases[*from].generation]) use(members);
        from = until;
    }
}

// A communication ends on all ranks at about the same time: by how much each node's clock is off, in most of them. Those of the first
// generation tell that. Later ones may have ranks whose processes are older than others, and have counted more steps.
void align(const RecordedRun& run, std::vector<RankPhase>& phases) {
    std::vector<std::vector<double>> errors(run.nodes.size());
    for_each_round(run, phases, [&](std::span<const size_t> members) {
        const RankPhase& first = phases[members.front()];
        if (first.generation != run.generations.front().number) return;
        for (const size_t i : members)
            errors[phases[i].node].push_back(phases[i].time.until - first.time.until);
    });
    std::vector<double> shifts;
    for (auto& of_node : errors) {
        const auto middle = of_node.begin() + static_cast<ptrdiff_t>(of_node.size() / 2);
        std::nth_element(of_node.begin(), middle, of_node.end());
        const double error = of_node.empty() ? 0 : *middle;
        shifts.push_back(std::abs(error) < kMostClockError ? -error : 0);
    }
    for (RankPhase& one : phases) {
        one.time.from += shifts[one.node];
        one.time.until += shifts[one.node];
    }
}

}  // namespace

Try<Details> read_details(const RecordedRun& run, size_t most) {
    Details details;
    details.left_out_from = DP_TRY(end_of_most(run, most));
    for (size_t node = 0; node < run.nodes.size(); ++node)
        DP_TRY(NodePhases(run, node, details.phases).read(details.left_out_from));
    std::ranges::sort(details.phases, {},
                      [](const RankPhase& one) { return std::tuple(one.node, one.task, one.time.from); });
    align(run, details.phases);
    return details;
}

std::vector<Wait> waits_in(const RecordedRun& run, const std::vector<RankPhase>& phases) {
    std::vector<Wait> waits;
    for_each_round(run, phases, [&](std::span<const size_t> members) {
        Interval common = phases[members.front()].time;
        for (const size_t i : members)
            common = {std::max(common.from, phases[i].time.from),
                      std::min(common.until, phases[i].time.until)};
        // Ranks that have counted their steps differently are not together.
        if (common.length() < 1 / kUsPerSecond) return;
        const auto length_of = [&](size_t i) { return phases[i].time.length(); };
        const size_t shortest = *std::ranges::min_element(members, {}, length_of);
        for (const size_t i : members)
            if (length_of(i) - length_of(shortest) > kShortestWait) waits.push_back({i, shortest});
    });
    return waits;
}

}  // namespace dp
