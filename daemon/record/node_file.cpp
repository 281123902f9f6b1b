// SPDX-License-Identifier: Apache-2.0
#include "record/node_file.hpp"

#include <algorithm>
#include <numeric>

#include "base/text.hpp"
#include "record/entries.hpp"
#include "record/file.hpp"
#include "record/sample.hpp"

namespace dp {
namespace {

using record::Moment;

// What a file may make this program store. A node has fewer tasks, a run fewer generations.
constexpr size_t kMaxTasks = 4096, kMaxLives = 500'000, kMaxEarlyMoments = 10'000, kMaxEvents = 10'000,
                 kMaxEnds = 10'000, kMaxStills = 100'000;
constexpr int64_t kMostSteps = int64_t{1} << 60;
// Of a wall clock, in ms: the year 10000.
constexpr int64_t kLatestClock = 253'402'300'800'000;

double seconds(int64_t ms) {
    return static_cast<double>(ms) / 1000;
}

void close(std::vector<Interval>& still, double at) {
    if (!still.empty() && still.back().until < 0) still.back().until = at;
}

class NodeFileReader {
 public:
    NodeFileReader(const std::string& path, NodeFile& out) : out_(out) { out_.node.path = path; }

    // Returns what is missing, "" if nothing is.
    Try<std::string> read() {
        RecordFile file = DP_TRY(RecordFile::open(out_.node.path));
        const record::Entry* entry = file.next();
        if (!entry || !entry->has_begin())
            return fail(file.problem().empty() ? "it has no beginning" : file.problem());
        DP_TRY(begin(entry->begin()));
        std::string problem;
        while (problem.empty() && (entry = file.next())) {
            problem = take(*entry);
            if (!problem.empty()) break;
            ++out_.node.entries;
            out_.node.time.until = seconds(entry->at_ms());
        }
        close_lives(out_.node.time.until);
        note_environments();
        return problem.empty() ? file.problem() : problem;
    }

 private:
    NodeFile& out_;
    size_t ranks_ = 0;  // of the present generation: its first tasks have them
    // Where a rank's life is, by generation and rank; of the present generation and the one before it.
    std::map<std::pair<uint32_t, uint32_t>, std::pair<size_t, size_t>> lives_;
    std::optional<uint32_t> generation_, last_generation_;
    // Before the node knows its ranks' generation.
    std::vector<std::pair<double, Moment>> early_;
    double sampled_ = 0;
    size_t life_count_ = 0, still_count_ = 0;
    struct Told {
        uint32_t generation = 0;
        Variables variables;
        bool is_replaced = false;  // its process, by another one
    };
    std::map<size_t, Told> told_;  // environments, by task
    // Its pid as the node has started it, and as the rank says, which may run in a shell.
    struct Pids {
        int32_t started = 0, said = 0;
    };
    std::map<size_t, Pids> processes_;  // likewise

    Try<void> begin(const record::Begin& begin) {
        if (begin.tasks() > kMaxTasks) return fail("it claims to have " + plural(begin.tasks(), "task"));
        out_.begin = begin;
        out_.begin.set_unix_ms(std::clamp<int64_t>(begin.unix_ms(), 0, kLatestClock));
        out_.node.host = printable(begin.host());
        out_.node.node_rank = begin.node_rank();
        out_.node.tasks.resize(begin.tasks());
        for (uint32_t local = 0; local < begin.tasks(); ++local) out_.node.tasks[local].local_id = local;
        return {};
    }

    std::string take(const record::Entry& entry) {
        const double at = seconds(entry.at_ms());
        switch (entry.what_case()) {
            case record::Entry::kGeneration:
                return begin_generation(entry.generation(), at);
            case record::Entry::kGenerationEnd:
                end_generation(entry.generation_end(), at);
                break;
            case record::Entry::kMoment:
                note(entry.moment(), at);
                break;
            case record::Entry::kSample:
                note(entry.sample(), at);
                break;
            case record::Entry::kNote:
                if (out_.events.size() < kMaxEvents)
                    out_.events.push_back(
                        {at, out_.node.host, printable(entry.note().text(), kMaxRecordText), {}});
                else
                    ++out_.events_left_out;
                break;
            case record::Entry::kHang:
                if (out_.hangs.size() < kMostHangs)
                    out_.hangs.push_back({at, printable(entry.hang().reason(), kMaxRecordText),
                                          calls_of(entry.hang(), world_size(entry.hang().generation()))});
                break;
            case record::Entry::kTransports:
                if (const uint32_t world = world_size(entry.transports().generation()); world > 0)
                    out_.transports = {entry.transports().generation(),
                                       transports_of(entry.transports(), world)};
                break;
            case record::Entry::kEnvironment:
                note(entry.environment());
                break;
            case record::Entry::kPreflight:
                if (!out_.node.preflight) out_.node.preflight.emplace();
                out_.node.preflight->add(entry.preflight());
                break;
            case record::Entry::kEnd:
                out_.node.is_complete = true;
                break;
            case record::Entry::kBegin:
                return "two records in one file; the second is not shown";
            case record::Entry::WHAT_NOT_SET:  // of a later version
                break;
        }
        return "";
    }

    std::string begin_generation(const record::Generation& generation, double at) {
        life_count_ += 1 + static_cast<size_t>(generation.ranks_size());
        if (static_cast<size_t>(generation.ranks_size()) > out_.node.tasks.size() ||
            (generation_ && generation.number() <= *generation_) || life_count_ > kMaxLives)
            return "a generation that cannot be; the rest is not shown";
        close_lives(at);
        std::erase_if(lives_, [&](const auto& life) { return life.first.first != generation_; });
        last_generation_ = generation_;
        generation_ = generation.number();
        out_.generations[*generation_] = {generation.world_size(), at, {}};
        ranks_ = static_cast<size_t>(generation.ranks_size());
        sampled_ = at;
        for (size_t local = 0; local < out_.node.tasks.size(); ++local) {
            auto& lives = out_.node.tasks[local].lives;
            if (local >= ranks_ && !lives.empty() && !lives.back().rank) {  // as before
                lives.back().generation = *generation_;
                lives.back().time.until = -1;
                continue;
            }
            if (!lives.empty()) lives.back().is_followed = true;
            RankLife& life = lives.emplace_back();
            life.generation = *generation_;
            life.time = {at, -1};
            if (local >= ranks_) continue;
            life.rank = generation.ranks(static_cast<int>(local));
            lives_[{*generation_, *life.rank}] = {local, lives.size() - 1};
        }
        for (const auto& [when, moment] : early_)
            if (moment.generation() == *generation_) note(moment, when);
        std::erase_if(early_, [&](const auto& one) { return one.second.generation() <= *generation_; });
        return "";
    }

    // Where nobody said that they ended.
    void close_lives(double at) {
        for (auto& task : out_.node.tasks) {
            if (task.lives.empty()) continue;
            RankLife& life = task.lives.back();
            if (life.time.until < 0) life.time.until = at;
            close(life.still, life.time.until);
        }
    }

    // The last one may come after one that another generation was to follow.
    void end_generation(const record::GenerationEnd& end, double at) {
        if (out_.ends.size() == kMaxEnds && !out_.ends.contains(end.generation())) return;
        const auto [found, is_first] = out_.ends.try_emplace(end.generation());
        if (!is_first && (found->second.is_last || !end.is_last())) return;
        found->second = {at, printable(end.reason(), kMaxRecordText), end.is_last()};
        if (end.generation() != generation_) return;
        for (auto& task : out_.node.tasks) {
            RankLife& life = task.lives.back();
            life.is_followed = !end.is_last();
            // At the end of all, ranks have time to write a checkpoint.
            if (end.is_last() || life.time.until >= 0) continue;
            life.time.until = at;
            close(life.still, at);
        }
    }

    RankLife* life_of(const Moment& moment) {
        const auto found = lives_.find({moment.generation(), moment.rank()});
        return found == lives_.end() ? nullptr
                                     : &out_.node.tasks[found->second.first].lives[found->second.second];
    }

    void note(const Moment& moment, double at) {
        if (!generation_ || moment.generation() > *generation_) {
            if (early_.size() == kMaxEarlyMoments) return;
            early_.emplace_back(at, moment);
            early_.back().second.clear_where();
            return;
        }
        if (moment.kind() == Moment::FIRST_STEP) {
            if (const auto found = out_.generations.find(moment.generation());
                found != out_.generations.end() && !found->second.first_step)
                found->second.first_step =
                    static_cast<int64_t>(std::min<uint64_t>(moment.step(), kMostSteps));
            return;
        }
        RankLife* const life = life_of(moment);
        if (!life) return;
        const auto first = [at](std::optional<double>& when) {
            if (!when) when = at;
        };
        switch (moment.kind()) {
            case Moment::STARTED:
                note_process(moment);
                return first(life->started);
            case Moment::HELLO:
                processes_[task_of(moment)].said = moment.pid();
                return first(life->hello);
            case Moment::READY:
                return first(life->ready);
            case Moment::EXITED:
                first(life->exited);
                life->wait_status = moment.wait_status();
                return close(life->still, at);
            case Moment::STILL:
                if (life->time.until < 0 && (life->still.empty() || life->still.back().until >= 0) &&
                    still_count_++ < kMaxStills)
                    life->still.push_back(
                        {std::clamp(at - seconds(std::clamp<int64_t>(moment.still_ms(), 0, kLatestEntry)),
                                    std::min(life->time.from, at), at),
                         -1});
                return;
            case Moment::MOVES:
                return close(life->still, at);
            default:
                return;
        }
    }

    // Of a rank that has a life.
    size_t task_of(const Moment& moment) const {
        return lives_.at({moment.generation(), moment.rank()}).first;
    }

    // In each generation it is told of those, too, that have outlived a restart: with the pid that they say.
    void note_process(const Moment& moment) {
        const size_t local = task_of(moment);
        const auto [found, is_first] = processes_.try_emplace(local);
        Pids& pids = found->second;
        const bool is_another = is_first || (moment.pid() != pids.started && moment.pid() != pids.said);
        if (is_another) pids = {moment.pid(), 0};
        const auto told = told_.find(local);
        if (told != told_.end() && is_another && told->second.generation < moment.generation())
            told->second.is_replaced = true;
    }

    // 0: the node knows of no such generation.
    uint32_t world_size(uint32_t generation) const {
        const auto found = out_.generations.find(generation);
        return found == out_.generations.end() ? 0 : found->second.world_size;
    }

    // Those of its ranks may come one after the other.
    void note(const record::Environment& said) {
        const auto environment = environment_of(said, out_.node.tasks.size());
        if (!environment) return;
        for (const auto& [rank, own] : environment->ranks) {
            const auto life = lives_.find({said.generation(), rank});
            if (life == lives_.end() || rank >= world_size(said.generation())) continue;
            auto& told = told_[life->second.first];
            told = {said.generation(), environment->common, false};
            told.variables.insert(own.begin(), own.end());
        }
    }

    // What a process had at its start it has in each generation that it lives to see; only a new process tells anew.
    void note_environments() {
        for (const auto& [local, told] : told_) {
            const auto& lives = out_.node.tasks[local].lives;
            if (lives.back().rank && !told.is_replaced)
                add_environment(lives.back().generation, *lives.back().rank, told.variables);
        }
        if (out_.environment) return;
        uint32_t last = 0;
        for (const auto& [local, told] : told_) last = std::max(last, told.generation);
        for (const auto& [local, told] : told_)
            for (const RankLife& life : out_.node.tasks[local].lives)
                if (told.generation == last && life.generation == last && life.rank)
                    add_environment(last, *life.rank, told.variables);
    }

    void add_environment(uint32_t generation, uint32_t rank, const Variables& variables) {
        if (!out_.environment) out_.environment.emplace(generation, RecordedEnvironment());
        out_.environment->second.merge({variables, {{rank, {}}}});
    }

    void note(const record::Sample& sample, double at) {
        const double before = std::exchange(sampled_, at);
        for (size_t local = 0; local < std::min(ranks_, tasks_in(sample)); ++local) {
            TaskRecord& task = out_.node.tasks[local];
            RankLife& life = task.lives.back();
            const SpentTimes times = labelled_times(sample, local);
            const double labelled = std::accumulate(times.begin(), times.end(), 0.0);
            if (labelled > 0 && !life.first_phase) life.first_phase = std::max(before, at - labelled);
            task.steps += of_task(sample.steps(), local);
            life.steps =
                std::clamp<int64_t>(life.steps + std::clamp<int64_t>(of_task(sample.step_count(), local),
                                                                     -kMostSteps, kMostSteps),
                                    0, kMostSteps);
            task.cpu_seconds += seconds(of_task(sample.cpu_ms(), local));
            task.memory_peak_mib = std::max(task.memory_peak_mib, of_task(sample.memory_mib(), local));
        }
    }
};

void shift(std::optional<double>& time, double by) {
    if (time) *time += by;
}

void shift(Interval& interval, double by) {
    interval.from += by;
    interval.until += by;
}

}  // namespace

Try<NodeFile> read_node_file(const std::string& path, std::string& problem) {
    NodeFile file;
    problem = DP_TRY(NodeFileReader(path, file).read());
    return file;
}

void shift(NodeFile& file, double by) {
    file.node.offset = by;
    shift(file.node.time, by);
    for (auto& task : file.node.tasks)
        for (auto& life : task.lives) {
            shift(life.time, by);
            for (auto* moment : {&life.started, &life.hello, &life.ready, &life.first_phase, &life.exited})
                shift(*moment, by);
            for (auto& still : life.still) shift(still, by);
        }
    for (auto& [number, generation] : file.generations) generation.began += by;
    for (auto& [number, end] : file.ends) end.at += by;
    for (auto& event : file.events) event.at += by;
    for (auto& hang : file.hangs) hang.at += by;
}

}  // namespace dp
