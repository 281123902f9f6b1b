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
    kCanFollow,
    kCompletes,
    kParts,  // first and count of each; {0, 0}: none
    kFields = kParts + 2 * Remains::kMostParts
};

std::int64_t bits_of(double number) {
    return std::bit_cast<std::int64_t>(number);
}
double number_of(std::int64_t bits) {
    return std::bit_cast<double>(bits);
}

}  // namespace

Result<std::optional<Survival::Source>> Survival::ask(std::int64_t values, Device& device,
                                                      Communicator& communicator) {
    auto held = copy_ ? std::optional(copy_->progress) : remains_ ? remains_->progress() : std::nullopt;
    const std::vector<Shard> parts = copy_ ? copy_->parts : held ? remains_->parts() : std::vector<Shard>();
    std::array<std::int64_t, kFields> mine{};
    mine[kStep] = held ? held->step : -1;
    if (held) {
        mine[kSkipped] = held->skipped;
        mine[kSkippedInEpoch] = held->skipped_in_epoch;
        mine[kBad] = held->bad_in_a_row;
        mine[kLoss] = bits_of(held->loss);
        mine[kCorrect] = bits_of(held->correct);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        mine[kParts + 2 * i] = parts[i].first;
        mine[kParts + 2 * i + 1] = parts[i].count;
    }
    if (remains_ && !copy_) last_world_ = remains_->world();
    mine[kWorld] = last_world_;
    if (held && !copy_) {
        mine[kCanFollow] = remains_->can_follow() ? 1 : 0;
        mine[kCompletes] = remains_->has_to_complete() ? 1 : 0;
    }
    mine[kReached] = std::max(reached_, remains_ ? remains_->reached() : 0);
    mine[kRecoveries] = totals_.recoveries;
    mine[kSeconds] = bits_of(totals_.seconds);
    mine[kRepeated] = totals_.repeated;
    mine[kWaited] = bits_of(began_ ? elapsed_since(*began_) : 0);
    const auto all = DP_TRY(gather_of_all_ranks(mine, device, communicator));
    asked_ = Clock::now();
    room_ = {};
    const auto of = [&](std::int64_t rank) { return all.data() + rank * kFields; };

    std::vector<Holding> holdings;
    for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
        const std::int64_t* said = of(rank);
        if (said[kStep] >= 0) {
            holdings.push_back({rank, said[kStep], {}, said[kCanFollow] != 0});
            for (std::size_t i = 0; i < Remains::kMostParts; ++i)
                holdings.back().parts.push_back({said[kParts + 2 * i], said[kParts + 2 * i + 1]});
        }
        reached_ = std::max(reached_, said[kReached]);
        totals_.recoveries = std::max(totals_.recoveries, said[kRecoveries]);
        totals_.seconds = std::max(totals_.seconds, number_of(said[kSeconds]));
        totals_.repeated = std::max(totals_.repeated, said[kRepeated]);
        seconds_ = std::max(seconds_, number_of(said[kWaited]));
    }
    if (const auto leader = let_follow(holdings, values)) {
        const auto follower = std::ranges::find_if(holdings, [&](const Holding& one) {
            return one.rank == communicator.rank() && one.step > of(one.rank)[kStep];
        });
        DP_TRY(follow(*leader, follower != holdings.end(), values, device, communicator));
        if (follower != holdings.end()) held = remains_->progress();
    }
    const auto whole = newest_whole(holdings, values);
    std::optional<Source> source;
    bool gives = false;
    if (whole) {
        const std::int64_t first = std::ranges::min(whole->pieces, {}, &Piece::rank).rank;
        const std::int64_t* said = of(first);
        source = Source{
            first, whole->pieces, {whole->step, said[kSkipped], said[kSkippedInEpoch], said[kBad], 0, 0}};
        double holders = 0;
        for (const Holding& one : holdings) {
            if (of(one.rank)[kStep] != whole->step) continue;
            ++holders;
            source->progress.loss += number_of(of(one.rank)[kLoss]);
            source->progress.correct += number_of(of(one.rank)[kCorrect]);
        }
        source->progress.loss /= holders;
        source->progress.correct /= holders;
        if (held && held->step == whole->step) source->progress = *held;
        const double share = static_cast<double>(said[kWorld]) / static_cast<double>(communicator.size());
        source->progress.loss *= share;
        source->progress.correct *= share;
        gives = std::ranges::find(whole->pieces, communicator.rank(), &Piece::rank) != whole->pieces.end();
    }
    const bool has_all = parts.size() == 1 && parts.front().count == values;
    if (!whole || !held || held->step != whole->step || (has_all && !gives)) {
        copy_.reset();
    } else if (!copy_) {
        copy_ = Copy{*held, parts, {}, {}};
        for (std::size_t i = 0; i < parts.size(); ++i) copy_->state.push_back(remains_->state(i));
        copy_->buffers = remains_->buffers();
        DP_TRY(device.status());
    }
    // With a rank's remains goes memory that others of its node still read.
    bool is_read = false;
    for (const Holding& one : holdings) is_read = is_read || of(one.rank)[kCompletes] != 0;
    if (is_read) DP_TRY(all_or_none({}, device, communicator));
    remains_.reset();
    communicator_.reset();
    return source;
}

// From `rank`, which has them in `numbers`, to those who want them, by way of room_.
Result<void> Survival::send(const Shard& piece, std::int64_t rank, const std::vector<float>* numbers,
                            std::span<const Part> wanted, Device& device, Communicator& communicator) {
    std::vector<float> arrived(static_cast<std::size_t>(room_.elements()));
    for (std::int64_t at = piece.first; at < piece.first + piece.count; at += kChunk) {
        const std::int64_t count = std::min(kChunk, piece.first + piece.count - at);
        const Tensor chunk = room_.view(0, {count});
        if (numbers != nullptr) device.upload(numbers->data() + (at - piece.first), chunk);
        DP_TRY(device.status());
        DP_TRY(communicator.broadcast(chunk, rank));
        for (const Part& part : wanted) {
            const std::int64_t from = std::max(at, part.first);
            const std::int64_t to = std::min(at + count, part.first + part.count);
            if (from >= to) continue;
            device.download(communicator.result_of(chunk).view(from - at, {to - from}), arrived.data());
            device.upload(arrived.data(), part.tensor.view(from - part.first, {to - from}));
        }
        DP_TRY(communicator.node_barrier());  // all have read it
    }
    return communicator.confirm();
}

// Every rank calls; those that follow take the leader's step.
Result<void> Survival::follow(std::int64_t leader, bool follows, std::int64_t values, Device& device,
                              Communicator& communicator) {
    room_ = device.make_to_sum(Type::f32, {std::min(kChunk, values)});
    std::vector<float> sums;
    if (leader == communicator.rank()) sums = remains_->sums();
    std::vector<Part> wanted;
    if (follows) wanted.push_back({device.make(Type::f32, {values}), 0, values});
    DP_TRY(send({0, values}, leader, sums.empty() ? nullptr : &sums, wanted, device, communicator));
    room_ = {};
    if (follows) remains_->follow(device.values_of<float>(wanted.front().tensor));
    return device.status();
}

Result<void> Survival::give(const Source& source, std::span<const std::vector<Part>> state,
                            const std::vector<Tensor>& buffers, Device& device, Communicator& communicator) {
    std::vector<Part> others;
    std::int64_t all = 0;
    for (const Tensor& one : buffers) {
        others.push_back({one, all, one.elements()});
        all += one.elements();
    }
    std::int64_t most = all;
    for (const Piece& piece : source.pieces) most = std::max(most, piece.part.count);
    room_ = device.make_to_sum(Type::f32, {std::min(kChunk, most)});
    const auto is_mine = [&](std::int64_t rank) { return rank == communicator.rank(); };
    for (std::size_t vector = 0; vector < state.size(); ++vector)
        for (const Piece& piece : source.pieces) {
            const auto* numbers = is_mine(piece.rank) ? &copy_->state[piece.index][vector] : nullptr;
            DP_TRY(send(piece.part, piece.rank, numbers, state[vector], device, communicator));
        }
    if (all > 0) {
        const auto* numbers = is_mine(source.rank) ? &copy_->buffers : nullptr;
        DP_TRY(send({0, all}, source.rank, numbers, others, device, communicator));
    }
    room_ = {};
    return device.status();
}

RecoveryReport Survival::done(std::int64_t step, const std::optional<Source>& source) {
    copy_.reset();
    began_.reset();
    RecoveryReport report{step, {}, std::nullopt, seconds_ + elapsed_since(asked_)};
    if (source)
        for (const Piece& piece : source->pieces) report.from.push_back(piece.rank);
    if (reached_ > 0 || source) report.repeated = std::max<std::int64_t>(reached_ - step, 0);
    totals_.recoveries = std::max(totals_.recoveries + 1, generation_);
    totals_.seconds += report.seconds;
    totals_.repeated += report.repeated.value_or(0);
    reached_ = step;
    seconds_ = 0;
    return report;
}

}  // namespace dp::trainer
