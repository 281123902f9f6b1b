// SPDX-License-Identifier: Apache-2.0
//
// Parts of token sets as samples: what load_tokens() and mix_tokens() have in common.
#pragma once

#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// Tokens of a stream.
struct TokenRange {
    std::shared_ptr<const TokenStream> stream;
    std::int64_t first = 0, count = 0;

    std::int64_t samples(std::int64_t sequence) const { return (count - 1) / sequence; }
};

// What a set has to train on and to test with; at least a sample of each.
struct TokenParts {
    TokenRange train, test;
};
Result<TokenParts> open_tokens(const std::filesystem::path& where, std::int64_t sequence,
                               std::int64_t vocabulary, const std::optional<TrainTestRest>& split);

// Samples that are streamed.
Result<Split> streamed_split(std::shared_ptr<const Sequences> rows, std::int64_t count,
                             std::int64_t sequence);

}  // namespace dp::trainer
