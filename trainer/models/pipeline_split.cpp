// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/pipeline_split.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "trainer/base/random.hpp"
#include "trainer/models/freezing.hpp"

namespace dp::trainer {
namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

// Runs of layers, and what they take in each place of the model's order. Times are doubles for their squares; all ranks compute the
// same.
class Runs {
 public:
    Runs(const StageCosts& costs, std::int64_t places)
        : sums_{0}, embedding_(costs.embedding), head_(costs.head), places_(at(places)) {
        for (const std::int64_t cost : costs.layers) sums_.push_back(sums_.back() + cost);
    }

    std::size_t places() const { return places_; }
    std::size_t layers() const { return sums_.size() - 1; }
    double time(std::size_t place, std::size_t first, std::size_t end) const {
        return static_cast<double>(sums_[end] - sums_[first] + (place == 0 ? embedding_ : 0) +
                                   (place + 1 == places_ ? head_ : 0));
    }

 private:
    std::vector<std::int64_t> sums_;  // of the layers before each
    std::int64_t embedding_, head_;
    std::size_t places_;
};

struct Way {
    double value;
    std::vector<std::int64_t> counts;
};

// The split with the least value; among equals, the one that gives later places more.
// `value_with(value of the places before, time of one more)`.
template <typename ValueWith>
Way least_way(const Runs& runs, const ValueWith& value_with) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const std::size_t places = runs.places(), layers = runs.layers();
    std::vector<double> least(layers + 1, kNone);  // of the places so far, by the layers that they have
    least[0] = 0;
    std::vector<std::vector<std::size_t>> firsts(places, std::vector<std::size_t>(layers + 1));
    for (std::size_t place = 0; place < places; ++place) {
        std::vector<double> with(layers + 1, kNone);
        for (std::size_t end = place + 1; end + (places - place - 1) <= layers; ++end)
            for (std::size_t first = place; first < end; ++first) {
                const double value = value_with(least[first], runs.time(place, first, end));
                if (value >= with[end]) continue;
                with[end] = value;
                firsts[place][end] = first;
            }
        least = std::move(with);
    }
    Way way{least[layers], std::vector<std::int64_t>(places)};
    for (std::size_t place = places, end = layers; place-- > 0; end = firsts[place][end])
        way.counts[place] = static_cast<std::int64_t>(end - firsts[place][end]);
    return way;
}

std::vector<std::int64_t> split_of_stages(const Runs& runs) {
    const double slowest =
        least_way(runs, [](double before, double time) { return std::max(before, time); }).value;
    return least_way(runs,
                     [&](double before, double time) {
                         return time > slowest ? std::numeric_limits<double>::infinity()
                                               : before + time * time;
                     })
        .counts;
}

// How slow the slowest stage is and how unlike they are, then the same of the chunks: less is better.
using Slowness = std::array<double, 4>;
Slowness slowness_of(const std::vector<std::int64_t>& counts, std::size_t stages, const Runs& runs) {
    std::vector<double> of_stages(stages, 0);
    Slowness slowness{};
    const auto add = [&](std::size_t from, double time) {
        slowness[from] = std::max(slowness[from], time);
        slowness[from + 1] += time * time;
    };
    std::size_t first = 0;
    for (std::size_t place = 0; place < counts.size(); ++place) {
        const std::size_t end = first + static_cast<std::size_t>(counts[place]);
        const double time = runs.time(place, first, end);
        of_stages[place % stages] += time;
        add(2, time);
        first = end;
    }
    for (const double time : of_stages) add(0, time);
    return slowness;
}

using Counts = std::vector<std::int64_t>;

// A split of all layers into chunks, and how slow it is. Of two that are as fast the one counts where earlier chunks have fewer.
class Chunks {
 public:
    Chunks(Counts counts, std::size_t stages, const Runs& runs)
        : counts_(std::move(counts)), slowness_(slowness_of(counts_, stages, runs)) {}

    const Counts& counts() const { return counts_; }
    bool is_better_than(const Chunks& other) const {
        return std::tie(slowness_, counts_) < std::tie(other.slowness_, other.counts_);
    }

 private:
    Counts counts_;
    Slowness slowness_;
};

// What is tried with more chunks is less, as it takes the cube of their number.
constexpr std::size_t kFew = 16;
constexpr int kDraws = 16;

// Moves a layer from one chunk to another, or two layers over two boundaries between chunks, the best move first, until none helps.
Chunks improved(Chunks best, std::size_t stages, const Runs& runs) {
    for (bool moves = true; moves;) {
        moves = false;
        const Counts from = best.counts();
        const std::size_t places = from.size();
        const auto consider = [&](const Counts& counts) {
            if (std::ranges::min(counts) < 1) return;
            Chunks other(counts, stages, runs);
            if (!other.is_better_than(best)) return;
            best = std::move(other);
            moves = true;
        };
        const auto after = [](Counts counts, std::size_t taken, std::size_t given) {
            --counts[taken];
            ++counts[given];
            return counts;
        };
        for (std::size_t taken = 0; taken < places; ++taken)
            for (std::size_t given = 0; given < places; ++given)
                if (taken != given) consider(after(from, taken, given));
        if (places > kFew) continue;
        for (std::size_t one = 0; one + 1 < places; ++one)
            for (std::size_t other = one; other + 1 < places; ++other)
                for (const auto& first : {after(from, one, one + 1), after(from, one + 1, one)})
                    for (const auto& both : {after(first, other, other + 1), after(first, other + 1, other)})
                        consider(both);
    }
    return best;
}

// Of the layers that each stage would have with one chunk, each chunk has as many.
Counts dealt(const Runs& of_stages, std::size_t places) {
    const Counts stages = split_of_stages(of_stages);
    Counts counts(places);
    const auto chunks = static_cast<std::int64_t>(places / stages.size());
    for (std::size_t place = 0; place < places; ++place)
        counts[place] =
            shard_of(stages[place % stages.size()], static_cast<std::int64_t>(place / stages.size()), chunks)
                .count;
    return counts;
}

// Each chunk has one, and each layer that is left is of any of them. All ranks draw the same.
Counts drawn(const Runs& runs, Random& random) {
    Counts counts(runs.places(), 1);
    for (std::size_t left = runs.layers() - runs.places(); left > 0; --left)
        ++counts[random.below(static_cast<std::uint32_t>(runs.places()))];
    return counts;
}

// The best that is found from several splits on.
Counts split_of_chunks(const Runs& runs, std::size_t stages, const Runs& of_stages) {
    const auto from = [&](Counts counts) {
        return improved(Chunks(std::move(counts), stages, runs), stages, runs);
    };
    Chunks best =
        from(even_layers(static_cast<std::int64_t>(runs.layers()), static_cast<std::int64_t>(runs.places())));
    std::vector<Counts> starts{split_of_stages(runs), dealt(of_stages, runs.places())};
    Random random(1, 0);
    if (runs.places() <= kFew)
        for (int i = 0; i < kDraws; ++i) starts.push_back(drawn(runs, random));
    for (Counts& other : starts) {
        if (std::ranges::min(other) < 1) continue;
        if (Chunks found = from(std::move(other)); found.is_better_than(best)) best = std::move(found);
    }
    return best.counts();
}

StageCosts stage_costs(const SplitCosts& costs) {
    StageCosts both{{}, costs.embedding.both(), costs.head.both()};
    for (const PassFlops& layer : costs.layers) both.layers.push_back(layer.both());
    return both;
}

// Of the parameters that a layer multiplies with, and of norms.
bool learns(const std::string& name, const GptShape& shape) {
    return !is_frozen_by(name + ".weight", shape.freeze) || !is_frozen_by(name + ".bias", shape.freeze);
}

bool adapter_learns(const std::string& name, const GptShape& shape) {
    return !is_frozen_by(name + ".lora_A.weight", shape.freeze) ||
           !is_frozen_by(name + ".lora_B.weight", shape.freeze);
}

}  // namespace

SplitCosts split_costs(const GptShape& shape) {
    // A backward pass is two products for each of a forward one, of which one is the weight's gradient. The embedding adds two
    // rows, and its backward pass to two rows.
    const std::int64_t c = shape.hidden, scores = 2 * shape.sequence * c, table = 2 * c * shape.vocabulary;
    const bool adapts = shape.lora_rank > 0;
    const auto embeds = [&](const char* name) { return !adapts && !is_frozen_by(name, shape.freeze); };
    const bool learns_words = embeds("wte"), learns_embedding = learns_words || embeds("wpe");
    struct Linear {
        const char* name;
        std::int64_t flops;
        bool is_adapted = false;
    };
    SplitCosts costs{{}, {2 * c, learns_embedding ? 2 * c : 0}, {table, learns_words ? 2 * table : table}};
    bool has_backward = learns_embedding;  // something is learnt below
    for (std::int64_t number = 0; number < shape.layers; ++number) {
        const std::string layer = "h." + std::to_string(number);
        std::int64_t forward = scores, gradients = 0;
        bool learns_some = false;
        for (const auto& [name, flops, is_adapted] : {Linear{".attn.c_attn", 6 * c * c, true},
                                                      {".attn.c_proj", 2 * c * c},
                                                      {".mlp.c_fc", 8 * c * c},
                                                      {".mlp.c_proj", 8 * c * c},
                                                      {".ln_1", 0},
                                                      {".ln_2", 0}}) {
            forward += flops;
            if (adapts ? !is_adapted || !adapter_learns(layer + name, shape) : !learns(layer + name, shape))
                continue;
            gradients += flops;
            learns_some = true;
        }
        has_backward |= learns_some;
        const std::int64_t again = shape.recompute ? forward : 0;
        costs.layers.push_back({forward, has_backward ? again + forward + scores + gradients : 0});
    }
    return costs;
}

std::vector<std::int64_t> balanced_layers(std::int64_t stages, std::int64_t chunks, const StageCosts& costs) {
    const Runs runs(costs, stages * chunks);
    return chunks == 1 ? split_of_stages(runs) : split_of_chunks(runs, at(stages), Runs(costs, stages));
}

std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t chunks) {
    std::vector<std::int64_t> all;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        all.push_back(shard_of(layers, chunk, chunks).count);
    return all;
}

std::vector<std::int64_t> chunk_layers(const GptShape& shape) {
    const std::int64_t stages = shape.layout.stages, chunks = shape.layout.chunks;
    const PipelineSplit& split = shape.layout.split;
    if (stages == 1) return {shape.layers};
    if (!split.layers.empty()) return split.layers;
    return split.is_even ? even_layers(shape.layers, stages * chunks)
                         : balanced_layers(stages, chunks, stage_costs(split_costs(shape)));
}

std::vector<PassFlops> chunk_costs(const GptShape& shape) {
    const SplitCosts costs = split_costs(shape);
    std::vector<PassFlops> all;
    std::size_t layer = 0;
    for (const std::int64_t count : chunk_layers(shape)) {
        PassFlops& chunk = all.emplace_back();
        for (std::int64_t i = 0; i < count; ++i) chunk += costs.layers[layer++];
    }
    all.front() += costs.embedding;
    all.back() += costs.head;
    return all;
}

std::vector<std::int64_t> largest_stages(const GptShape& shape) {
    const std::int64_t stages = shape.layout.stages;
    const auto layers = chunk_layers(shape);
    std::set<std::vector<std::int64_t>> seen;
    std::vector<std::int64_t> largest;
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        std::vector<std::int64_t> its;
        for (std::size_t chunk = at(stage); chunk < layers.size(); chunk += at(stages))
            its.push_back(layers[chunk]);
        const bool is_end = stage == 0 || stage + 1 == stages;
        if (is_end || seen.insert(std::move(its)).second) largest.push_back(stage);
    }
    return largest;
}

}  // namespace dp::trainer
