// SPDX-License-Identifier: Apache-2.0
//
// The whole model's values where ranks divide it.
#pragma once

#include <bit>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// As ParameterSet::download() on a rank that has all of it, to the bit. Every rank calls, and all get all. Of what a rank has whole
// it takes its own numbers.
inline Result<std::vector<float>> whole_parameters(const ParameterSet& parameters, const Ranks& ranks,
                                                   Device& device) {
    if (ranks.tensor.size() == 1) return parameters.download(device);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(parameters.whole_count()));
    for (const Parameter& one : parameters.all()) {
        const auto here = device.values_of<float>(one.value);
        if (one.part.is_whole()) {
            values.insert(values.end(), here.begin(), here.end());
            continue;
        }
        // Every number is of one rank, so the sum of their bits has its bits; as floats, -0 would become 0.
        std::vector<std::int64_t> bits(static_cast<std::size_t>(elements_of(one.part.whole)));
        for (const Extent& extent : extents_of(one.part))
            std::transform(here.begin() + extent.here, here.begin() + extent.here + extent.count,
                           bits.begin() + extent.there,
                           [](float value) { return std::bit_cast<std::uint32_t>(value); });
        const Tensor sum =
            device.copy_of<std::int64_t>(Type::i64, {static_cast<std::int64_t>(bits.size())}, bits);
        DP_TRY(ranks.tensor.all_reduce(sum, Reduction::sum));
        for (const std::int64_t all : device.values_of<std::int64_t>(sum))
            values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(all)));
    }
    DP_TRY(device.status());
    return values;
}

}  // namespace dp::trainer
