// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/pipeline_split.hpp"

#include <algorithm>
#include <set>

namespace dp::trainer {
namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

// Deals layers out, at least `least` to each place, every further one to the place that is then fastest; of several the last. No
// other way has a faster slowest place. `others`: what each place costs without layers.
std::vector<std::int64_t> dealt(std::int64_t layers, std::int64_t least, std::int64_t cost,
                                const std::vector<std::int64_t>& others) {
    std::vector<std::int64_t> counts(others.size(), least);
    for (auto left = layers - least * static_cast<std::int64_t>(others.size()); left > 0; --left) {
        std::size_t fastest = 0;
        const auto with_one_more = [&](std::size_t place) {
            return (counts[place] + 1) * cost + others[place];
        };
        for (std::size_t place = 1; place < others.size(); ++place)
            if (with_one_more(place) <= with_one_more(fastest)) fastest = place;
        ++counts[fastest];
    }
    return counts;
}

}  // namespace

SplitCosts split_costs(const GptShape& shape) {
    const std::int64_t c = shape.hidden, layer = 24 * c * c + 2 * shape.sequence * c,
                       passes = shape.recompute
                                    ? 4
                                    : 3;  // a backward pass is two products for each of a forward one
    // The embedding adds two rows, and its backward pass to two rows.
    return {passes * layer, 4 * c, 3 * 2 * c * shape.vocabulary};
}

std::vector<std::int64_t> balanced_layers(std::int64_t layers, std::int64_t stages, std::int64_t chunks,
                                          const SplitCosts& costs) {
    const auto with_ends = [&](std::int64_t places, bool has_first, bool has_last) {
        std::vector<std::int64_t> others(at(places), 0);
        if (has_first) others.front() += costs.embedding;
        if (has_last) others.back() += costs.head;
        return others;
    };
    const auto of_stages = dealt(layers, chunks, costs.layer, with_ends(stages, true, true));
    std::vector<std::int64_t> all(at(stages * chunks));
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        const auto of_chunks =
            dealt(of_stages[at(stage)], 1, costs.layer, with_ends(chunks, stage == 0, stage + 1 == stages));
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
            all[at(chunk * stages + stage)] = of_chunks[at(chunk)];
    }
    return all;
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
                         : balanced_layers(shape.layers, stages, chunks, split_costs(shape));
}

std::vector<std::int64_t> chunk_costs(const GptShape& shape) {
    const SplitCosts costs = split_costs(shape);
    auto all = chunk_layers(shape);
    for (std::int64_t& layers : all) layers *= costs.layer;
    all.front() += costs.embedding;
    all.back() += costs.head;
    return all;
}

double forward_part(const GptShape& shape) {
    return shape.recompute ? 1.0 / 4 : 1.0 / 3;
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
