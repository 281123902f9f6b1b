// SPDX-License-Identifier: Apache-2.0
//
// The whole model's values where ranks divide it.
#pragma once

#include <algorithm>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/checkpoint/owned_numbers.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// Copies what a part has of a parameter to its place in the whole.
inline void copy(std::span<const float> here, const Extent& extent, std::span<float> whole) {
    std::copy_n(here.begin() + extent.here, extent.count, whole.begin() + extent.there);
}

// As ParameterSet::download() on a rank that has all of it, to the bit. Every rank calls, and all get all. Of what a rank has it
// takes its own numbers, so that copies that differ are seen.
inline Result<std::vector<float>> whole_parameters(const ParameterSet& parameters, const Ranks& ranks,
                                                   Device& device) {
    if (!ranks.divide_model()) return parameters.download(device);
    constexpr std::int64_t kMost = std::int64_t{1} << 18;
    OwnedNumbers exchange(device, kMost);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(parameters.whole_count()));
    for (const Parameter& one : parameters.all()) {
        const auto here = device.values_of<float>(one.value);
        // Where there are stages, some may not have it.
        if (one.part.is_whole() && ranks.pipeline.size() == 1) {
            values.insert(values.end(), here.begin(), here.end());
            continue;
        }
        const auto extents = extents_of(one.part);
        const std::size_t first = values.size();
        values.resize(first + static_cast<std::size_t>(elements_of(one.part.whole)));
        const std::span whole = std::span(values).subspan(first);
        for (const Extent& extent : extents) copy(here, extent, whole);
        const auto all = static_cast<std::int64_t>(whole.size());
        for (std::int64_t done = 0; done < all; done += kMost) {
            const auto piece = whole.subspan(static_cast<std::size_t>(done),
                                             static_cast<std::size_t>(std::min(kMost, all - done)));
            exchange.begin(static_cast<std::int64_t>(piece.size()));
            // What is not here is 0, whose bits add nothing.
            if (!one.part.is_copy) exchange.put(0, piece);
            DP_TRY(exchange.exchange([&](const Tensor& numbers) { return ranks.sum_of_parts(numbers); }));
            exchange.get(0, piece);
        }
        for (const Extent& extent : extents) copy(here, extent, whole);
    }
    DP_TRY(device.status());
    return values;
}

}  // namespace dp::trainer
