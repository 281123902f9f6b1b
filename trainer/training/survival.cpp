// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/survival.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "trainer/parallel/agreement.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// f32 numbers that travel at a time.
constexpr std::int64_t kChunk = std::int64_t{4} << 20;

// What a rank says of itself, as i64 numbers, which a sum over the ranks brings to all unchanged.
enum Field {
    kStep,
    kSkipped,
    kSkippedInEpoch,
    kBad,
    kLoss,
    kCorrect,
    kReached,
    kRecoveries,
    kSeconds,
    kRepeated,
    kWaited,
    kWorld,
    kFields
};

std::int64_t bits_of(double number) {
    return std::bit_cast<std::int64_t>(number);
}
double number_of(std::int64_t bits) {
    return std::bit_cast<double>(bits);
}

}  // namespace

Result<std::optional<Survival::Source>> Survival::ask(Device& device, Communicator& communicator) {
    const auto held = copied_ ? copied_ : remains_ ? remains_->progress() : std::nullopt;
    std::array<std::int64_t, kFields> mine{};
    mine[kStep] = held ? held->step : -1;
    if (held) {
        mine[kSkipped] = held->skipped;
        mine[kSkippedInEpoch] = held->skipped_in_epoch;
        mine[kBad] = held->bad_in_a_row;
        mine[kLoss] = bits_of(held->loss);
        mine[kCorrect] = bits_of(held->correct);
    }
    if (remains_) last_world_ = remains_->world();
    mine[kWorld] = last_world_;
    mine[kReached] = std::max(reached_, remains_ ? remains_->reached() : 0);
    mine[kRecoveries] = totals_.recoveries;
    mine[kSeconds] = bits_of(totals_.seconds);
    mine[kRepeated] = totals_.repeated;
    mine[kWaited] = bits_of(began_ ? elapsed_since(*began_) : 0);
    const auto all = DP_TRY(gather_of_all_ranks(mine, device, communicator));
    asked_ = Clock::now();
    room_ = {};
    const auto of = [&](std::int64_t rank) { return all.data() + rank * kFields; };

    std::int64_t newest = -1, first = 0, holders = 0;
    for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
        const std::int64_t* said = of(rank);
        if (said[kStep] > newest) {
            newest = said[kStep];
            first = rank;
        }
        reached_ = std::max(reached_, said[kReached]);
        totals_.recoveries = std::max(totals_.recoveries, said[kRecoveries]);
        totals_.seconds = std::max(totals_.seconds, number_of(said[kSeconds]));
        totals_.repeated = std::max(totals_.repeated, said[kRepeated]);
        seconds_ = std::max(seconds_, number_of(said[kWaited]));
    }
    std::optional<Source> source;
    if (newest >= 0) {
        const std::int64_t* said = of(first);
        source = Source{first, {newest, said[kSkipped], said[kSkippedInEpoch], said[kBad], 0, 0}};
        for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
            if (of(rank)[kStep] != newest) continue;
            ++holders;
            source->progress.loss += number_of(of(rank)[kLoss]);
            source->progress.correct += number_of(of(rank)[kCorrect]);
        }
        source->progress.loss /= static_cast<double>(holders);
        source->progress.correct /= static_cast<double>(holders);
        if (held && held->step == newest) source->progress = *held;
        const double share = static_cast<double>(said[kWorld]) / static_cast<double>(communicator.size());
        source->progress.loss *= share;
        source->progress.correct *= share;
    }
    if (source && first == communicator.rank() && !copied_) {
        copy_ = remains_->state();
        copied_ = held;
        DP_TRY(device.status());
    } else if (!source || first != communicator.rank()) {
        copy_.clear();
        copied_.reset();
    }
    remains_.reset();
    communicator_.reset();
    return source;
}

Result<void> Survival::give(const Source& source, std::span<const Part> parts,
                            std::span<const std::int64_t> sizes, Device& device, Communicator& communicator) {
    const std::int64_t most = std::min(kChunk, *std::ranges::max_element(sizes));
    room_ = device.make_to_sum(Type::f32, {most});
    std::vector<float> arrived(static_cast<std::size_t>(most));
    for (std::size_t vector = 0; vector < parts.size(); ++vector) {
        const Part& part = parts[vector];
        for (std::int64_t at = 0; at < sizes[vector]; at += kChunk) {
            const std::int64_t numbers = std::min(kChunk, sizes[vector] - at);
            const Tensor chunk = room_.view(0, {numbers});
            if (source.rank == communicator.rank()) device.upload(copy_[vector].data() + at, chunk);
            DP_TRY(device.status());
            DP_TRY(communicator.broadcast(chunk, source.rank));
            const std::int64_t from = std::max(at, part.first);
            const std::int64_t to = std::min(at + numbers, part.first + part.count);
            if (from < to) {
                device.download(communicator.result_of(chunk).view(from - at, {to - from}), arrived.data());
                device.upload(arrived.data(), part.tensor.view(from - part.first, {to - from}));
            }
            DP_TRY(communicator.node_barrier());  // all have read it
        }
    }
    room_ = {};
    return device.status();
}

RecoveryReport Survival::done(std::int64_t step, const std::optional<Source>& source) {
    copy_ = {};
    copied_.reset();
    began_.reset();
    RecoveryReport report{step, source ? std::optional(source->rank) : std::nullopt, std::nullopt,
                          seconds_ + elapsed_since(asked_)};
    if (reached_ > 0 || source) report.repeated = std::max<std::int64_t>(reached_ - step, 0);
    totals_.recoveries = std::max(totals_.recoveries + 1, generation_);
    totals_.seconds += report.seconds;
    totals_.repeated += report.repeated.value_or(0);
    reached_ = step;
    seconds_ = 0;
    return report;
}

}  // namespace dp::trainer
