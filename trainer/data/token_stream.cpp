// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_stream.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are read as they lie in memory");

// What the tokens of a part are between.
struct Extremes {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t largest = std::numeric_limits<std::int64_t>::min();
};

template <typename Stored>
Try<Extremes> convert(const TokenRun& run, std::int64_t first, std::span<Token> to) {
    std::array<Stored, 8192> piece;
    Extremes seen;
    for (std::size_t done = 0; done < to.size();) {
        const std::size_t count = std::min(to.size() - done, piece.size());
        DP_TRY(read_at(run.opened, run.at + (first + static_cast<std::int64_t>(done)) * bytes_of(run.type),
                       piece.data(), count * sizeof(Stored)));
        for (std::size_t i = 0; i < count; ++i) {
            // What is more than any vocabulary stays so in 63 bits.
            const auto number = static_cast<std::int64_t>(
                std::min<std::conditional_t<std::is_signed_v<Stored>, std::int64_t, std::uint64_t>>(
                    piece[i], std::numeric_limits<std::int64_t>::max()));
            seen.least = std::min(seen.least, number);
            seen.largest = std::max(seen.largest, number);
            to[done + i] = static_cast<Token>(number);
        }
        done += count;
    }
    return seen;
}

Try<Extremes> read_as_they_lie(const TokenRun& run, std::int64_t first, std::span<Token> to) {
    DP_TRY(read_at(run.opened, run.at + first * bytes_of(run.type), to.data(), to.size_bytes()));
    return Extremes{0, *std::max_element(to.begin(), to.end())};
}

Try<Extremes> read_tokens(const TokenRun& run, std::int64_t first, std::span<Token> to) {
    switch (run.type) {
        case StoredAs::u8:
            return convert<std::uint8_t>(run, first, to);
        case StoredAs::u16:
            return read_as_they_lie(run, first, to);
        case StoredAs::i32:
            return convert<std::int32_t>(run, first, to);
        case StoredAs::u32:
            return convert<std::uint32_t>(run, first, to);
        case StoredAs::i64:
            return convert<std::int64_t>(run, first, to);
        default:
            return convert<std::uint64_t>(run, first, to);
    }
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenRun> runs, std::int64_t vocabulary)
    : runs_(std::move(runs)), vocabulary_(vocabulary) {
    std::erase_if(runs_, [](const TokenRun& run) { return run.count == 0; });
    starts_.push_back(0);
    for (const TokenRun& run : runs_) {
        // Samples lie anywhere: to read on behind each would be for nothing.
        ::posix_fadvise(run.opened.get(), 0, 0, POSIX_FADV_RANDOM);
        starts_.push_back(starts_.back() + run.count);
    }
}

// Calls `visit` with each run that has some of the tokens, the number of the first in it and how many.
void TokenStream::each_part(std::int64_t first, std::int64_t count, auto visit) const {
    auto run = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                        starts_.begin() - 1);
    for (; count > 0 && run < runs_.size(); ++run) {
        const std::int64_t here = std::min(count, starts_[run + 1] - first);
        if (!visit(runs_[run], first - starts_[run], here)) return;
        first += here;
        count -= here;
    }
}

Result<void> TokenStream::read(std::int64_t first, std::span<Token> to) const {
    Result<void> done;
    each_part(first, static_cast<std::int64_t>(to.size()),
              [&](const TokenRun& run, std::int64_t at, std::int64_t count) {
                  done = read_run(run, at, to.first(static_cast<std::size_t>(count)));
                  to = to.subspan(static_cast<std::size_t>(count));
                  return done.has_value();
              });
    return done;
}

Result<void> TokenStream::read_run(const TokenRun& run, std::int64_t first, std::span<Token> to) const {
    const auto seen = read_tokens(run, first, to);
    if (!seen)
        return fail(Fault::training, "{}: {}: the tokens {} to {} cannot be read; was the file changed?",
                    run.file.string(), seen.error().message, first,
                    first + static_cast<std::int64_t>(to.size()) - 1);
    if (seen->least < 0)
        return fail(Fault::usage, "{}: token {} is negative; these numbers are no tokens", run.file.string(),
                    seen->least);
    if (seen->largest < vocabulary_) return {};
    constexpr std::int64_t kMostTokens = std::int64_t{std::numeric_limits<Token>::max()} + 1;
    return fail(
        Fault::usage, "{}: token {} is outside the model's vocabulary of {}; {}", run.file.string(),
        seen->largest, vocabulary_,
        seen->largest < kMostTokens
            ? fmt::format("give --vocab-size {} or more, or prepare the text with another --tokenizer",
                          seen->largest + 1)
            : fmt::format("this trainer's models have at most {}: prepare the text with another "
                          "tokenizer",
                          kMostTokens));
}

void TokenStream::expect(std::int64_t first, std::int64_t count) const {
    each_part(first, count, [](const TokenRun& run, std::int64_t at, std::int64_t here) {
        const std::int64_t each = bytes_of(run.type);
        ::posix_fadvise(run.opened.get(), run.at + at * each, here * each, POSIX_FADV_WILLNEED);
        return true;
    });
}

}  // namespace dp::trainer
