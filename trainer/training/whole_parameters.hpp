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

// As ParameterSet::download() on a rank that has all of it, to the bit. Every rank calls, and all get all. Of what a rank has whole
// it takes its own numbers.
inline Result<std::vector<float>> whole_parameters(const ParameterSet& parameters, const Ranks& ranks,
                                                   Device& device) {
    if (ranks.tensor.size() == 1) return parameters.download(device);
    constexpr std::int64_t kMost = std::int64_t{1} << 18;
    OwnedNumbers exchange(device, kMost);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(parameters.whole_count()));
    for (const Parameter& one : parameters.all()) {
        const auto here = device.values_of<float>(one.value);
        if (one.part.is_whole()) {
            values.insert(values.end(), here.begin(), here.end());
            continue;
        }
        const auto extents = extents_of(one.part);
        const std::int64_t all = elements_of(one.part.whole);
        for (std::int64_t done = 0; done < all; done += kMost) {
            const std::int64_t count = std::min(kMost, all - done);
            exchange.begin(count);
            for (const Extent& extent : extents) {
                const std::int64_t from = std::max(extent.there, done),
                                   to = std::min(extent.there + extent.count, done + count);
                if (from < to)
                    exchange.put(from - done, std::span(here).subspan(
                                                  static_cast<std::size_t>(extent.here + from - extent.there),
                                                  static_cast<std::size_t>(to - from)));
            }
            DP_TRY(exchange.exchange(ranks.tensor));
            values.resize(values.size() + static_cast<std::size_t>(count));
            exchange.get(0, std::span(values).last(static_cast<std::size_t>(count)));
        }
    }
    DP_TRY(device.status());
    return values;
}

}  // namespace dp::trainer
