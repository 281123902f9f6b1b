// SPDX-License-Identifier: Apache-2.0
#include "loop/step_recorder.hpp"

#include <algorithm>

#include "common/slurm_patterns.hpp"
#include "engine/preflight_record.hpp"
#include "loop/gpu_probe.hpp"
#include "loop/handshake.hpp"
#include "record/transports.hpp"

namespace dp {
namespace {

std::vector<std::string> writer_command(const DaemonConfig& config, const std::string& run) {
    return {"/proc/self/exe", "write-record",
            fill_in(config.settings.record->pattern, {{'j', std::to_string(config.job_id)},
                                                      {'s', std::to_string(config.step_id)},
                                                      {'N', config.host}}) +
                "/" + record_file_name(config, run)};
}

int64_t unix_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

bool have_phases(const std::vector<SampleReader::Rank>& ranks) {
    return std::ranges::any_of(ranks,
                               [](const auto& rank) { return rank.page && rank.page->ended_count > 0; });
}

}  // namespace

StepRecorder::StepRecorder(const DaemonConfig& config, const std::string& secret,
                           std::function<void(const std::string&)> on_failure)
    : gpus_(every(gpu_use_command(config.host, config.tiles_conf), *config.settings.record_interval)),
      writer_(writer_command(config, make_run_id(secret)), std::move(on_failure)) {
    add(begin_entry(config, make_run_id(secret), DP_VERSION, unix_ms()));
}

void StepRecorder::start(event_base* base) {
    writer_.start(base);
    gpus_.start(base);
}

std::set<pid_t> StepRecorder::helpers() const {
    std::set<pid_t> all{writer_.pid(), gpus_.pid()};
    all.erase(0);
    return all;
}

void StepRecorder::begin_generation(const DaemonConfig& config, const NodePlan& plan) {
    add_environments();
    generation_ = plan.generation;
    told_.clear();
    ranks_ = config.ranks.size();
    samples_.begin_generation(config.world_size);
    details_.begin_generation();
    sampled_ = Clock::now();
    world_size_ = config.world_size;
    add(generation_entry(config, plan));
}

void StepRecorder::note(const wire::FromNode& message) {
    for (auto& entry : entries_of(message)) add(std::move(entry));
}

void StepRecorder::end_generation(uint32_t generation, const wire::Abort& why, bool is_last) {
    ended_ = {generation, is_last};
    add_environments();
    add(generation_end_entry(generation, why, is_last));
}

void StepRecorder::note(const std::string& line) {
    add(note_entry(line));
}

void StepRecorder::note(const wire::Hang& hang, const std::map<uint32_t, wire::RankStacks::Thread>& calls) {
    if (generation_ && !calls.empty() && hangs_++ < kMostHangs) add(hang_entry(*generation_, hang, calls));
}

void StepRecorder::note_environment(uint32_t rank, std::string_view told) {
    if (!told_.insert(rank).second) return;
    if (environments_.empty()) first_told_ = Clock::now();
    environments_[rank] = variables_of(told);
    if (environments_.size() >= ranks_) add_environments();
}

void StepRecorder::add_waiting_environments() {
    if (!environments_.empty() && Clock::now() - first_told_ >= kEnvironmentsWait) add_environments();
}

void StepRecorder::note(const wire::NcclTransports& found, const DaemonConfig& config) {
    if (!generation_) return;
    if (auto entry = transports_entry(*generation_, found, config.world_size, config.ranks))
        add(std::move(*entry));
}

// The recorder is as old as the preflight.
void StepRecorder::note(const wire::NodeExamination& found) {
    add(preflight_entry(found, age()));
}

void StepRecorder::note(const wire::MeasureLink& begun) {
    if (!begun.serve()) partners_[begun.round()] = begun.address();
}

void StepRecorder::note(const wire::MeasuredLink& link) {
    if (const auto partner = partners_.find(link.round()); partner != partners_.end())
        add(preflight_entry(link, partner->second, age()));
}

void StepRecorder::add_environments() {
    if (const auto told = std::exchange(environments_, {}); generation_ && !told.empty())
        add(environment_entry(*generation_, told));
}

bool StepRecorder::wants_sample(std::chrono::milliseconds pause) const {
    return generation_ && Clock::now() - sampled_ >= pause;
}

bool StepRecorder::records_phases(const std::vector<SampleReader::Rank>& ranks) {
    return generation_ && details_.is_on(std::chrono::floor<std::chrono::seconds>(age()), have_phases(ranks),
                                         unix_ms() / 1000, world_size_);
}

void StepRecorder::sample(const DaemonConfig& config, const std::vector<SampleReader::Rank>& ranks,
                          bool is_regular) {
    sampled_ = Clock::now();
    const auto at = age();
    const EndedPhases ended =
        details_.at_sample(std::chrono::floor<std::chrono::seconds>(at), have_phases(ranks), unix_ms() / 1000,
                           world_size_, is_regular);
    // steady_clock is the pages' CLOCK_MONOTONIC.
    const std::chrono::nanoseconds entry = began_.time_since_epoch() + at;
    record::Entry sample;
    *sample.mutable_sample() = samples_.read(ranks, monotonic_ns(), ended, entry.count(), !is_regular);
    if (const auto found = gpus_.take()) {
        const bool are_known = std::ranges::none_of(config.tiles, &std::string::empty);
        gpu_changes_.add_to(*sample.mutable_sample(), *found,
                            are_known ? known_tiles(config) : std::set<uint32_t>());
    }
    add(at, std::move(sample));
    if (const auto problem = gpus_.take_problem()) note("its GPUs could not be looked at: " + *problem);
}

void StepRecorder::finish(event_base* base) {
    add_environments();
    record::Entry end;
    end.mutable_end();
    add(std::move(end));
    if (!writer_.has_started()) writer_.start(base);
    writer_.finish();
}

void StepRecorder::add(std::chrono::milliseconds at, record::Entry entry) {
    entry.set_at_ms(at.count());
    writer_.add(bytes_of(entry));
}

std::chrono::milliseconds StepRecorder::age() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
}

}  // namespace dp
