// SPDX-License-Identifier: Apache-2.0
//
// The record of a long step that nobody has run, for the benchmark of reports and the test of its size. Each rank trains, in phases so
// short that a page keeps no more of them a second, logs its loss and throughput, and has a GPU; rank 1 is slow, and in the middle all
// begin again.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/phase_page.hpp"
#include "record/detail_schedule.hpp"
#include "record/entries.hpp"
#include "record/gpus.hpp"
#include "record/new_scalars.hpp"

namespace dp {

struct LongRecordShape {
    uint32_t nodes = 0, ranks_per_node = 0;
    int64_t seconds = 0;
};

class LongRecord {
 public:
    LongRecord(const LongRecordShape& shape, uint32_t node) : shape_(shape), node_(node), random_(node) {}

    std::string host() const { return "bench" + std::to_string(node_); }

    // All of its entries, in order.
    void write(const std::function<void(const record::Entry&)>& use) {
        use_ = &use;
        record::Entry begin;
        begin.mutable_begin()->set_run("00000000000000be");
        begin.mutable_begin()->set_host(host());
        begin.mutable_begin()->set_node_rank(node_);
        begin.mutable_begin()->set_node_count(shape_.nodes);
        begin.mutable_begin()->set_tasks(shape_.ranks_per_node);
        begin.mutable_begin()->set_unix_ms(kUnixMs);
        add(0, begin);
        const int64_t half = shape_.seconds * 500;
        live(0, 100, half);
        record::Entry end;
        end.mutable_generation_end()->set_reason("rank 3 on bench0 was killed by signal 9 (SIGKILL)");
        add(half, end);
        live(1, half + kRestartMs, shape_.seconds * 1000);
        record::Entry last;
        last.mutable_end();
        add(shape_.seconds * 1000, last);
    }

 private:
    static constexpr int64_t kRestartMs = 20'000;
    static constexpr int64_t kUnixMs = 1'795'000'000'000;
    static constexpr uint32_t kSteps = 42;  // a second
    static constexpr uint32_t kStepUs = 1'000'000 / kSteps;
    static_assert(kSteps * 3 <= kEndedPhases && (kSteps + 1) * 3 > kEndedPhases);

    LongRecordShape shape_;
    uint32_t node_;
    std::mt19937 random_;
    const std::function<void(const record::Entry&)>* use_ = nullptr;
    DetailSchedule details_;
    NewScalars scalars_;
    GpuChanges gpu_changes_;
    std::vector<PhasePage> pages_ = std::vector<PhasePage>(shape_.ranks_per_node);

    uint32_t rank(uint32_t local) const { return node_ * shape_.ranks_per_node + local; }
    bool is_slow(uint32_t local) const { return rank(local) == 1; }

    void add(int64_t at_ms, record::Entry entry) {
        entry.set_at_ms(at_ms);
        (*use_)(entry);
    }

    void live(uint32_t number, int64_t from_ms, int64_t until_ms) {
        record::Entry begin;
        begin.mutable_generation()->set_number(number);
        begin.mutable_generation()->set_world_size(shape_.nodes * shape_.ranks_per_node);
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local)
            begin.mutable_generation()->add_ranks(rank(local));
        add(from_ms, begin);
        details_.begin_generation();
        scalars_.begin_generation(shape_.nodes * shape_.ranks_per_node);
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            record::Entry started;
            started.mutable_moment()->set_kind(record::Moment::STARTED);
            started.mutable_moment()->set_rank(rank(local));
            started.mutable_moment()->set_generation(number);
            add(from_ms, started);
        }
        for (int64_t at = from_ms + 1000; at <= until_ms; at += 1000) {
            record::Entry entry = sample();
            add_scalars(*entry.mutable_sample(), number, static_cast<uint64_t>(at / 1000 * kSteps));
            add_gpus(*entry.mutable_sample());
            if (details_.is_on(std::chrono::seconds(at / 1000), true, (kUnixMs + at) / 1000,
                               shape_.nodes * shape_.ranks_per_node))
                add_details(*entry.mutable_sample(), static_cast<uint64_t>(at / 1000 * kSteps));
            add(at, entry);
        }
    }

    record::Entry sample() {
        record::Entry entry;
        auto& sample = *entry.mutable_sample();
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            const uint32_t compute = (is_slow(local) ? 850 : 600) + random_() % 100;
            const uint32_t load = random_() % 20;
            sample.add_compute_ms(compute);
            sample.add_load_ms(load);
            sample.add_communication_ms(1000 - compute - load);
            sample.add_steps(kSteps);
            sample.add_step_count(kSteps);
            sample.add_cpu_ms(900 + random_() % 200);
            sample.add_memory_mib(40'000 + random_() % 500);
        }
        sample.set_node_memory_mib(400'000 + random_() % 1000);
        sample.set_sent_kib(1'000'000 + random_() % 100'000);
        sample.set_received_kib(1'000'000 + random_() % 100'000);
        return entry;
    }

    void add_scalars(record::Sample& sample, uint32_t generation, uint64_t step) {
        std::vector<NewScalars::Rank> ranks;
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            const double noise = static_cast<double>(random_() % 1000) / 1e4;
            log_scalar(pages_[local], "loss",
                       static_cast<float>(10 / std::log2(2 + static_cast<double>(step)) + noise), step);
            log_scalar(pages_[local], "samples_per_second", 1e4 * (1 + noise), step);
            ranks.push_back({local, rank(local), uint64_t{generation} << 32 | local, &pages_[local]});
        }
        scalars_.add_to(sample, ranks);
    }

    // As busy ones change from second to second.
    void add_gpus(record::Sample& sample) {
        wire::NodeUsage found;
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            auto& gpu = *found.add_gpus();
            gpu.set_tile(local);
            gpu.set_busy_percent(94 + random_() % 7);
            gpu.set_memory_used(uint64_t{70'000} << 20);
            gpu.set_memory_total(uint64_t{81'559} << 20);
            gpu.set_watts(600 + random_() % 100);
            gpu.set_celsius(60 + random_() % 3);
            gpu.set_sm_mhz(1980 - 15 * (random_() % 8));
            gpu.set_clock_reasons(random_() % 4 == 0 ? 4 : 0);
        }
        gpu_changes_.add_to(sample, found);
    }

    // Of the last second: each step loads, computes and communicates.
    void add_details(record::Sample& sample, uint64_t step) {
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            auto& detail = *sample.add_details();
            detail.set_task(local);
            detail.set_before_us(kSteps * kStepUs);
            detail.set_step(step);
            for (uint32_t i = 0; i < kSteps; ++i) {
                const uint32_t load = 200 + random_() % 400;
                const uint32_t compute = (is_slow(local) ? 20'000 : 14'000) + random_() % 2'000;
                for (const uint32_t length : {load, compute, kStepUs - load - compute})
                    detail.add_length_us(length);
                for (const unsigned what : {(i > 0 ? 8u : 0u) | 2u, 1u, 3u})
                    detail.mutable_step_and_phase()->push_back(static_cast<char>(what));
            }
        }
    }
};

}  // namespace dp
