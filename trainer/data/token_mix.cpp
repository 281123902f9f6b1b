// SPDX-License-Identifier: Apache-2.0
//
// Sets of tokens mixed by weight (dataset.hpp). Which set a sample is of follows from its number alone, so all ranks, however many,
// see the same mix.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "trainer/data/permutation.hpp"
#include "trainer/data/token_samples.hpp"

namespace dp::trainer {
namespace {

// The sets come in turns that repeat after so many samples, in proportion to their weights.
constexpr std::int64_t kTurns = 1000;

struct Turns {
    std::vector<std::size_t> set;      // whose turn it is
    std::vector<std::int64_t> before;  // its turns before this one
    std::vector<std::int64_t> of_set;  // the turns of each set
};

// Largest remainders, then always the set that is furthest behind.
Turns turns_of(const DataMix& mix) {
    const double whole = std::accumulate(mix.parts.begin(), mix.parts.end(), 0.0,
                                         [](double sum, const auto& part) { return sum + part.weight; });
    Turns turns;
    std::vector<double> remainders;
    for (const auto& part : mix.parts) {
        const double exact = part.weight / whole * kTurns;
        turns.of_set.push_back(static_cast<std::int64_t>(exact));
        remainders.push_back(exact - static_cast<double>(turns.of_set.back()));
    }
    for (auto left = kTurns - std::reduce(turns.of_set.begin(), turns.of_set.end()); left > 0; --left) {
        const auto most = std::max_element(remainders.begin(), remainders.end());
        ++turns.of_set[static_cast<std::size_t>(most - remainders.begin())];
        *most = -1;
    }
    std::vector<std::int64_t> taken(mix.parts.size());
    for (std::int64_t turn = 1; turn <= kTurns; ++turn) {
        std::size_t next = 0;
        std::int64_t furthest = std::numeric_limits<std::int64_t>::min();
        for (std::size_t set = 0; set < taken.size(); ++set) {
            const std::int64_t behind = turns.of_set[set] * turn - taken[set] * kTurns;
            if (taken[set] < turns.of_set[set] && behind > furthest) {
                furthest = behind;
                next = set;
            }
        }
        turns.set.push_back(next);
        turns.before.push_back(taken[next]++);
    }
    return turns;
}

// How many samples there are until one set is used up.
std::int64_t length_of(const Turns& turns, const std::vector<std::int64_t>& counts) {
    std::int64_t rounds = std::numeric_limits<std::int64_t>::max();
    for (std::size_t set = 0; set < counts.size(); ++set)
        rounds = std::min(rounds, counts[set] / turns.of_set[set]);
    std::int64_t more = 0;
    for (; more < kTurns; ++more) {
        const auto turn = static_cast<std::size_t>(more);
        const std::size_t set = turns.set[turn];
        if (rounds * turns.of_set[set] + turns.before[turn] >= counts[set]) break;
    }
    return rounds * kTurns + more;
}

class MixedSequences final : public Sequences {
 public:
    struct Part {
        StreamSequences rows;
        Permutation order;
    };
    MixedSequences(Turns turns, std::vector<Part> parts)
        : turns_(std::move(turns)), parts_(std::move(parts)) {}

    Result<void> read(std::int64_t sample, std::span<Token> to) const override {
        const auto [part, number] = place_of(sample);
        return part->rows.read(number, to);
    }
    void expect(std::int64_t sample) const override {
        const auto [part, number] = place_of(sample);
        part->rows.expect(number);
    }

 private:
    Turns turns_;
    std::vector<Part> parts_;

    std::pair<const Part*, std::int64_t> place_of(std::int64_t sample) const {
        const auto turn = static_cast<std::size_t>(sample % kTurns);
        const std::size_t set = turns_.set[turn];
        const std::int64_t number = sample / kTurns * turns_.of_set[set] + turns_.before[turn];
        return {&parts_[set], parts_[set].order.at(number)};
    }
};

Result<Split> mixed(const Turns& turns, const std::vector<TokenRange>& ranges, std::int64_t sequence,
                    std::uint64_t seed) {
    std::vector<std::int64_t> counts;
    std::vector<MixedSequences::Part> parts;
    for (const TokenRange& range : ranges) {
        counts.push_back(range.samples(sequence));
        parts.push_back({{range.stream, range.first, sequence}, {counts.back(), seed + parts.size()}});
    }
    return streamed_split(std::make_shared<MixedSequences>(turns, std::move(parts)), length_of(turns, counts),
                          sequence);
}

}  // namespace

Result<Dataset> mix_tokens(const DataMix& mix, std::int64_t sequence, std::int64_t vocabulary,
                           std::uint64_t seed, const std::optional<TrainTestRest>& split) {
    const Turns turns = turns_of(mix);
    std::vector<TokenRange> trains, tests;
    std::vector<std::string> names;
    for (std::size_t set = 0; set < mix.parts.size(); ++set) {
        const auto& [where, weight] = mix.parts[set];
        if (turns.of_set[set] == 0)
            return fail(Fault::usage,
                        "--data {}:{}: less than one sample of {}; give a larger weight, or leave it out",
                        where.string(), weight, kTurns);
        auto parts = DP_TRY(open_tokens(where, sequence, vocabulary, split));
        trains.push_back(std::move(parts.train));
        tests.push_back(std::move(parts.test));
        names.push_back(
            fmt::format("{:.3g} {}", static_cast<double>(turns.of_set[set]) / kTurns, where.string()));
    }
    auto train = DP_TRY(mixed(turns, trains, sequence, seed));
    auto test = DP_TRY(mixed(turns, tests, sequence, seed));
    return Dataset{std::move(train), std::move(test), fmt::format("{}", fmt::join(names, " + "))};
}

}  // namespace dp::trainer
