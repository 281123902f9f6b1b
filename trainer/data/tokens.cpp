// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_samples.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/sampler.hpp"
#include "trainer/data/token_files.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokenBytes = sizeof(Token);

Result<TokenRange> open_all(const TokenFiles& found, std::span<const fs::path> files,
                            std::int64_t vocabulary) {
    auto runs = DP_TRY(open_token_files(*found.format, files));
    auto stream = std::make_shared<const TokenStream>(std::move(runs), vocabulary);
    const std::int64_t count = stream->count();
    return TokenRange{std::move(stream), 0, count};
}

// Of a large set the test is small, because it is read at each epoch's end.
TokenParts cut(const TokenRange& all, std::int64_t sequence) {
    constexpr std::int64_t kMostTests = std::int64_t{1} << 20;
    const std::int64_t tests =
        std::min(std::max(std::min(all.count / 20, kMostTests), sequence + 1), all.count);
    const std::int64_t trains = all.count - tests;
    return {{all.stream, 0, trains}, {all.stream, trains, tests}};
}

TokenParts cut(const TokenRange& all, const TrainTestRest& split) {
    const double whole = split.train + split.test + split.rest;
    const auto until = [&](double part) {
        return std::min(all.count,
                        static_cast<std::int64_t>(static_cast<double>(all.count) * (part / whole)));
    };
    const std::int64_t trains = until(split.train), tests = until(split.train + split.test) - trains;
    return {{all.stream, 0, trains}, {all.stream, trains, tests}};
}

Result<void> check_length(const TokenRange& tokens, std::int64_t sequence, const fs::path& where,
                          std::string_view purpose) {
    if (tokens.count > sequence) return {};
    return fail(Fault::usage,
                "{}: {} tokens to {} with, but a sequence of {} needs {}; give a shorter sequence, or "
                "prepare more text",
                where.string(), tokens.count, purpose, sequence, sequence + 1);
}

// The tokens from `first` on, counted without those that only end a sample.
Result<std::vector<Token>> tokens_from(const Sequences& rows, std::int64_t first, std::int64_t count,
                                       std::int64_t samples, std::int64_t sequence) {
    std::vector<Token> row(static_cast<std::size_t>(sequence + 1)), tokens;
    while (static_cast<std::int64_t>(tokens.size()) < count) {
        const std::int64_t at = first + static_cast<std::int64_t>(tokens.size());
        const std::int64_t sample = std::min(at / sequence, samples - 1), skipped = at - sample * sequence;
        const std::int64_t length = sample == samples - 1 ? sequence + 1 : sequence;
        DP_TRY(rows.read(sample, row));
        const auto rest = count - static_cast<std::int64_t>(tokens.size());
        tokens.insert(tokens.end(), row.begin() + skipped, row.begin() + std::min(length, skipped + rest));
    }
    return tokens;
}

Split declared_split(std::int64_t count, std::int64_t sequence) {
    Split samples;
    samples.count = count;
    samples.features = samples.targets = {Type::u16, sequence, {}};
    samples.next_is_target = true;
    return samples;
}

std::int64_t bytes_of_samples(std::int64_t count, std::int64_t sequence) {
    return (count * sequence + 1) * kTokenBytes;
}

Result<Split> samples_of(const TokenRange& tokens, std::int64_t sequence) {
    const std::int64_t count = tokens.samples(sequence), bytes = bytes_of_samples(count, sequence);
    if (bytes > kMostHeld || count > kMostListed)
        return streamed_split(std::make_shared<StreamSequences>(tokens.stream, tokens.first, sequence), count,
                              sequence);
    std::vector<Token> all(static_cast<std::size_t>(tokens.count));
    DP_TRY(tokens.stream->read(tokens.first, all));
    Split samples = declared_split(count, sequence);
    samples.features = Matrix::of<Token>(Type::u16, sequence,
                                         std::span(all).first(static_cast<std::size_t>(bytes / kTokenBytes)));
    return samples;
}

}  // namespace

Result<TokenParts> open_tokens(const fs::path& where, std::int64_t sequence, std::int64_t vocabulary,
                               const std::optional<TrainTestRest>& split) {
    const auto files = DP_TRY(find_token_files(where));
    if (split && !files.test.empty())
        return fail(Fault::usage, "{}: {} is there to test with; leave out --data-split, or rename it",
                    where.string(), files.test.front().filename().string());
    auto train = DP_TRY(open_all(files, files.train, vocabulary));
    TokenParts parts;
    if (split)
        parts = cut(train, *split);
    else if (files.test.empty())
        parts = cut(train, sequence);
    else
        parts = {std::move(train), DP_TRY(open_all(files, files.test, vocabulary))};
    DP_TRY(check_length(parts.train, sequence, where, "train"));
    DP_TRY(check_length(parts.test, sequence, where, "test"));
    return parts;
}

Result<Split> streamed_split(std::shared_ptr<const Sequences> rows, std::int64_t count,
                             std::int64_t sequence) {
    Split samples = declared_split(count, sequence);
    StreamedRows streamed{std::move(rows), {}, bytes_of_samples(count, sequence), {}};
    for (const auto& [at, bytes] : pieces_of(streamed.bytes, true)) {
        const std::int64_t skipped = at % kTokenBytes;
        const auto piece =
            DP_TRY(tokens_from(*streamed.rows, at / kTokenBytes,
                               (skipped + bytes + kTokenBytes - 1) / kTokenBytes, count, sequence));
        const auto* begin = reinterpret_cast<const std::uint8_t*>(piece.data()) + skipped;
        streamed.spread.insert(streamed.spread.end(), begin, begin + bytes);
    }
    samples.streamed = std::move(streamed);
    return samples;
}

Result<Dataset> load_tokens(const fs::path& where, std::int64_t sequence, std::int64_t vocabulary,
                            const std::optional<TrainTestRest>& split) {
    const auto parts = DP_TRY(open_tokens(where, sequence, vocabulary, split));
    auto train = DP_TRY(samples_of(parts.train, sequence));
    auto test = DP_TRY(samples_of(parts.test, sequence));
    return Dataset{std::move(train), std::move(test), where.string()};
}

}  // namespace dp::trainer
