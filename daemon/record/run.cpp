// SPDX-License-Identifier: Apache-2.0
#include "record/run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <ranges>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "common/wait_status.hpp"
#include "record/entries.hpp"
#include "record/node_file.hpp"

namespace dp {
namespace {

// Where two files have a generation in common it began at the same moment; else their nodes' wall clocks have to do.
void align(std::vector<NodeFile>& files) {
    const NodeFile& first = files.front();
    std::vector<double> offsets;
    for (const NodeFile& file : files) {
        double offset = static_cast<double>(file.begin.unix_ms() - first.begin.unix_ms()) / 1000;
        for (const auto& [number, generation] : file.generations)
            if (const auto same = first.generations.find(number); same != first.generations.end()) {
                offset = same->second.began - generation.began;
                break;
            }
        offsets.push_back(offset);
    }
    const double earliest = *std::ranges::min_element(offsets);
    for (size_t i = 0; i < files.size(); ++i) shift(files[i], offsets[i] - earliest);
}

void merge_ends(const NodeFile& file, std::map<uint32_t, GenerationOfRun>& all) {
    for (const auto& [number, end] : file.ends) {
        const auto one = all.find(number);
        if (one == all.end()) continue;
        const bool is_known = !one->second.reason.empty();
        if (is_known && end.at >= one->second.time.until) continue;
        one->second.reason = end.reason;
        one->second.time.until = end.at;
    }
}

void merge_generations(const std::vector<NodeFile>& files, RecordedRun& run) {
    std::map<uint32_t, GenerationOfRun> all;
    for (const NodeFile& file : files)
        for (const auto& [number, generation] : file.generations) {
            auto [found, is_new] = all.try_emplace(number);
            GenerationOfRun& one = found->second;
            one.number = number;
            one.world_size = std::max(one.world_size, generation.world_size);
            one.time.from = is_new ? generation.began : std::min(one.time.from, generation.began);
            if (generation.first_step)
                one.first_step =
                    std::min(one.first_step.value_or(*generation.first_step), *generation.first_step);
        }
    for (const NodeFile& file : files) {
        merge_ends(file, all);
        for (const auto& task : file.node.tasks)
            for (const auto& life : task.lives)
                if (life.steps > 0) {
                    auto& last = all[life.generation].last_step;
                    last = std::max(last.value_or(0), life.steps);
                }
    }
    for (auto& [number, one] : all) {
        // Where its broker was lost nobody said that it ended.
        const auto next = all.upper_bound(number);
        const double latest = next == all.end() ? run.seconds : next->second.time.from;
        if (one.reason.empty() || one.time.until > latest) one.time.until = latest;
        run.generations.push_back(one);
    }
}

// A node is one of the last generation's if a task of it has a rank there.
bool is_in_last_generation(const NodeRecord& node, const RecordedRun& run) {
    return std::ranges::any_of(node.tasks, [&](const TaskRecord& task) {
        return !task.lives.empty() && task.lives.back().rank &&
               task.lives.back().generation == run.generations.back().number;
    });
}

RecordedRun::Outcome outcome_of(const std::vector<NodeFile>& files, const RecordedRun& run) {
    using How = RecordedRun::How;
    for (const NodeFile& file : files)
        for (const auto& [number, end] : file.ends)
            // A node that was cut off may have ended an earlier one for good; the others went on.
            if (end.is_last && (run.generations.empty() || number >= run.generations.back().number))
                return {How::failed, end.reason};
    if (run.generations.empty()) return {How::failed, "its ranks never started"};
    size_t unknown = run.node_count > files.size() ? run.node_count - files.size() : 0;
    for (const NodeFile& file : files) {
        if (!is_in_last_generation(file.node, run)) continue;
        bool is_known = file.node.is_complete;
        for (const auto& task : file.node.tasks) {
            const RankLife& life = task.lives.back();
            if (life.rank && life.wait_status.value_or(0) != 0 && !life.is_followed)
                return {How::failed, "rank " + std::to_string(*life.rank) + " on " + file.node.host + " " +
                                         describe_status(*life.wait_status)};
            is_known = is_known && !life.is_followed && (!life.rank || life.wait_status);
        }
        unknown += is_known ? 0 : 1;
    }
    if (unknown > 0)
        return {How::unknown,
                plural(unknown, "node") + " recorded no end (still running, lost, or not able to write)"};
    return {How::finished, ""};
}

// Under the line that told of it: whichever such line is nearest, for the nodes hear of a hang before the user does.
void merge_hangs(std::vector<NodeFile>& files, RecordedRun& run) {
    for (NodeFile& file : files)
        for (NodeFile::Hang& hang : file.hangs) {
            const auto distance = [&](const RunEvent& event) {
                return event.text.starts_with(hang.reason) ? std::abs(event.at - hang.at)
                                                           : std::numeric_limits<double>::infinity();
            };
            auto event = std::ranges::min_element(run.events, {}, distance);
            if (event == run.events.end() ||
                std::isinf(distance(*event))) {  // its teller's record is missing
                event = std::ranges::upper_bound(run.events, hang.at, {}, &RunEvent::at);
                event = run.events.insert(event, {hang.at, file.node.host, hang.reason, {}});
            }
            event->calls.merge(std::move(hang.calls));
        }
}

// Of all nodes that know it of the last generation of which any does.
template <typename What>
What merge_last(std::vector<NodeFile>& files, std::optional<std::pair<uint32_t, What>> NodeFile::*known) {
    What all;
    const auto generation_of = [&](const NodeFile& file) {
        return file.*known ? int64_t{(file.*known)->first} : -1;
    };
    const int64_t last = std::ranges::max(files | std::views::transform(generation_of));
    for (NodeFile& file : files)
        if (file.*known && generation_of(file) == last) all.merge(std::move((file.*known)->second));
    return all;
}

RecordedRun merged(std::vector<NodeFile> files) {
    std::ranges::sort(files, {}, [](const NodeFile& file) { return file.node.node_rank; });
    align(files);
    RecordedRun run;
    const record::Begin& begin = files.front().begin;
    run.id = printable(begin.run());
    run.slurm_dp = printable(begin.slurm_dp());
    run.job_id = begin.job_id();
    run.step_id = begin.step_id();
    run.hosts = printable(begin.nodes().empty() ? begin.host() : begin.nodes(), kMaxRecordText);
    run.node_count = begin.node_count();
    run.unix_ms = begin.unix_ms() - static_cast<int64_t>(files.front().node.offset * 1000);
    for (const auto& setting : begin.settings())
        run.settings[printable(setting.option())] = printable(setting.value(), kMaxRecordText);
    for (const NodeFile& file : files) run.seconds = std::max(run.seconds, file.node.time.until);
    merge_generations(files, run);
    run.outcome = outcome_of(files, run);
    run.transports = merge_last(files, &NodeFile::transports);
    run.transports.sort();
    run.environment = merge_last(files, &NodeFile::environment);
    std::multimap<double, RunEvent> events;
    for (NodeFile& file : files) {
        run.events_left_out += file.events_left_out;
        for (RunEvent& event : file.events) events.emplace(event.at, std::move(event));
    }
    for (auto& [at, event] : events) run.events.push_back(std::move(event));
    merge_hangs(files, run);
    for (NodeFile& file : files) run.nodes.push_back(std::move(file.node));
    return run;
}

Try<std::vector<std::string>> files_in(const std::string& place) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!fs::exists(place, error))
        return fail(printable(place) + ": " +
                    (error ? error.message() : "there is no such directory or file"));
    if (!fs::is_directory(place, error)) return std::vector{place};
    std::vector<std::string> files;
    for (auto at = fs::directory_iterator(place, error); !error && at != fs::directory_iterator();
         at.increment(error))
        if (at->path().native().ends_with(kRecordSuffix)) files.push_back(at->path());
    if (error) return fail(printable(place) + ": " + error.message());
    if (files.empty())
        return fail(printable(place) + ": there is no record (*" + std::string(kRecordSuffix) +
                    ") in it; they are made with --dp-record=DIR, and subdirectories are not searched");
    std::ranges::sort(files);
    return files;
}

// `runs`: by time. Each time that it is requeued, a job begins at a higher generation.
void link_requeued(std::vector<RecordedRun>& runs) {
    struct Later {
        uint32_t generation = 0;  // its first
        std::optional<int64_t> from;
    };
    std::map<std::pair<uint32_t, uint32_t>, Later> later;  // by job and step
    for (RecordedRun& run : runs | std::views::reverse) {
        if (run.job_id == 0 || run.generations.empty()) continue;
        Later& next = later[{run.job_id, run.step_id}];
        const uint32_t first = run.generations.front().number;
        std::optional<int64_t> from;
        if (next.generation > first) run.requeued_from = from = next.from;
        for (const GenerationOfRun& one : run.generations)
            if (one.first_step) from = std::min(from.value_or(*one.first_step - 1), *one.first_step - 1);
        next = {first, from};
    }
}

}  // namespace

double RankLife::running_from() const {
    for (const auto& moment : {first_phase, ready, hello, started})
        if (moment) return std::clamp(*moment, time.from, time.until);
    return time.until;
}

const RankLife* TaskRecord::first_as_rank() const {
    const auto found =
        std::ranges::find_if(lives, [](const RankLife& life) { return life.rank.has_value(); });
    return found == lives.end() ? nullptr : &*found;
}

const RankLife* TaskRecord::last_as_rank() const {
    const auto found = std::find_if(lives.rbegin(), lives.rend(),
                                    [](const RankLife& life) { return life.rank.has_value(); });
    return found == lives.rend() ? nullptr : &*found;
}

uint32_t RecordedRun::world_size() const {
    return generations.empty() ? 0 : generations.front().world_size;
}

size_t RecordedRun::task_count() const {
    size_t count = 0;
    for (const auto& node : nodes) count += node.tasks.size();
    return count;
}

Try<Records> read_records(const std::vector<std::string>& places) {
    Records records;
    std::map<std::string, std::vector<NodeFile>> by_run;
    std::set<std::string> seen;
    for (const std::string& place : places)
        for (const std::string& path : DP_TRY(files_in(place))) {
            if (!seen.insert(path).second) continue;
            std::string problem;
            auto file = read_node_file(path, problem);
            if (!file) problem = file.error().message;
            if (!problem.empty()) records.problems.push_back(printable(path) + ": " + problem);
            if (!file) continue;
            auto& others = by_run[file->begin.run()];
            const auto same = std::ranges::find_if(
                others, [&](const NodeFile& other) { return other.node.node_rank == file->node.node_rank; });
            if (same == others.end())
                others.push_back(std::move(*file));
            else
                records.problems.push_back(printable(path) + ": has the same node and run as " +
                                           printable(same->node.path) + "; that one is shown");
        }
    for (auto& [id, files] : by_run) records.runs.push_back(merged(std::move(files)));
    std::ranges::sort(records.runs, {}, [](const RecordedRun& run) { return std::tie(run.unix_ms, run.id); });
    link_requeued(records.runs);
    if (records.runs.empty()) return fail("nothing can be shown: " + join(records.problems, "; "));
    for (const RecordedRun& run : records.runs)
        if (run.node_count > run.nodes.size())
            records.problems.push_back(
                "run " + run.id + ": the records of " + std::to_string(run.node_count - run.nodes.size()) +
                " of " + plural(run.node_count, "node") +
                " are missing; if each node has a directory of its own, give all of them");
    return records;
}

}  // namespace dp
