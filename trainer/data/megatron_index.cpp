// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/megatron_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr std::int64_t kFixed = 34;  // bytes before the lengths
constexpr std::int64_t kLength = sizeof(std::int32_t), kPointer = sizeof(std::int64_t);

// Up to so many sequences are checked one by one; of more, blocks of them that are spread evenly.
constexpr std::int64_t kMostChecked = std::int64_t{1} << 22;
constexpr std::int64_t kBlock = 4096, kBlocks = 256;

struct TypeCode {
    std::string_view name;
    std::optional<StoredAs> type;  // nothing: no tokens
};
// From 1 on.
constexpr std::array<TypeCode, 8> kTypeCodes{{{"uint8", StoredAs::u8},
                                              {"int8", std::nullopt},
                                              {"int16", std::nullopt},
                                              {"int32", StoredAs::i32},
                                              {"int64", StoredAs::i64},
                                              {"float64", std::nullopt},
                                              {"float32", std::nullopt},
                                              {"uint16", StoredAs::u16}}};

template <typename T>
T number_at(const std::array<char, kFixed>& bytes, std::size_t at) {
    T number;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
}

// The fixed part, as far as it can be right for files of these sizes.
Try<MegatronIndex> read_fixed_part(const ReadIndex& read, std::int64_t index_bytes) {
    std::array<char, kFixed> bytes{};
    if (index_bytes < kFixed) return dp::fail("cut short within the header");
    DP_TRY(read(0, bytes.data(), bytes.size()));
    if (std::string_view(bytes.data(), kMegatronMagic.size()) != kMegatronMagic)
        return dp::fail("it is no index of Megatron-LM (MMIDIDX)");
    if (const auto version = number_at<std::uint64_t>(bytes, 9); version != 1)
        return dp::fail(fmt::format("version {}, but this trainer reads version 1", version));
    const auto code = static_cast<std::size_t>(number_at<std::uint8_t>(bytes, 17));
    if (code == 0 || code > kTypeCodes.size())
        return dp::fail(fmt::format("its type of numbers is {}, which Megatron-LM does not have", code));
    const TypeCode& type = kTypeCodes[code - 1];
    if (!type.type)
        return dp::fail(fmt::format("its numbers are of {}, which is no type of tokens", type.name));
    const auto sequences = number_at<std::uint64_t>(bytes, 18),
               documents = number_at<std::uint64_t>(bytes, 26);
    const auto rest = static_cast<std::uint64_t>(index_bytes - kFixed);
    if (sequences == 0) return dp::fail("it has no sequences");
    if (sequences > rest / (kLength + kPointer) || documents > rest / kPointer ||
        sequences * (kLength + kPointer) + documents * kPointer != rest)
        return dp::fail(fmt::format(
            "{} sequences and {} documents do not take the {} bytes that follow; was it cut, or is "
            "it of images and text?",
            sequences, documents, rest));
    return MegatronIndex{*type.type, static_cast<std::int64_t>(sequences),
                         std::max<std::int64_t>(static_cast<std::int64_t>(documents) - 1, 0), 0};
}

// Checks the sequences [first, first + count), of which the first begins at the byte `next` if that is known, and returns the
// byte behind them.
Try<std::int64_t> check_sequences(const ReadIndex& read, const MegatronIndex& index, std::int64_t token_bytes,
                                  std::int64_t first, std::int64_t count, std::optional<std::int64_t> next) {
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(count));
    std::vector<std::int64_t> pointers(static_cast<std::size_t>(count));
    DP_TRY(read(kFixed + first * kLength, lengths.data(), lengths.size() * kLength));
    DP_TRY(read(kFixed + index.sequences * kLength + first * kPointer, pointers.data(),
                pointers.size() * kPointer));
    std::int64_t end = next.value_or(pointers.front());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t number = first + static_cast<std::int64_t>(i);
        if (lengths[i] < 0) return dp::fail(fmt::format("sequence {} has {} tokens", number, lengths[i]));
        if (pointers[i] < 0 || pointers[i] > token_bytes)
            return dp::fail(
                fmt::format("sequence {} begins at byte {} of {}", number, pointers[i], token_bytes));
        if (pointers[i] != end)
            return dp::fail(
                fmt::format("sequence {} begins at byte {}, but the one before it ends at {}: this trainer "
                            "reads them one after another",
                            number, pointers[i], end));
        end += lengths[i] * bytes_of(index.type);
    }
    return end;
}

Try<std::int64_t> check_all(const ReadIndex& read, const MegatronIndex& index, std::int64_t token_bytes) {
    std::int64_t end = 0;
    for (std::int64_t first = 0; first < index.sequences; first += kBlock)
        end = DP_TRY(
            check_sequences(read, index, token_bytes, first, std::min(kBlock, index.sequences - first), end));
    return end;
}

Try<std::int64_t> check_some(const ReadIndex& read, const MegatronIndex& index, std::int64_t token_bytes) {
    const std::int64_t last = index.sequences - kBlock;
    for (std::int64_t i = 0; i < kBlocks; ++i)
        DP_TRY(check_sequences(read, index, token_bytes, last / kBlocks * i, kBlock,
                               i == 0 ? std::optional<std::int64_t>(0) : std::nullopt));
    return check_sequences(read, index, token_bytes, last, kBlock, std::nullopt);
}

}  // namespace

Try<MegatronIndex> read_megatron_index(const ReadIndex& read, std::int64_t index_bytes,
                                       std::int64_t token_bytes) {
    auto index = DP_TRY(read_fixed_part(read, index_bytes));
    const std::int64_t end = DP_TRY(index.sequences <= kMostChecked ? check_all(read, index, token_bytes)
                                                                    : check_some(read, index, token_bytes));
    if (end != token_bytes)
        return dp::fail(fmt::format("its sequences end at byte {}, but there are {}", end, token_bytes));
    index.tokens = token_bytes / bytes_of(index.type);
    return index;
}

Result<TokenRun> open_megatron(const std::filesystem::path& file) {
    auto tokens_file = file;
    tokens_file.replace_extension(".bin");
    const auto index = DP_TRY(open_sized(file));
    auto tokens = DP_TRY(open_sized(tokens_file));
    const auto read = read_megatron_index(
        [&](std::int64_t at, void* to, std::size_t count) { return read_at(index.file, at, to, count); },
        index.bytes, tokens.bytes);
    if (!read)
        return fail(Fault::usage, "{}: {}; write it and {} again with Megatron-LM's preprocess_data.py",
                    file.string(), read.error().message, tokens_file.filename().string());
    return TokenRun{tokens_file, std::move(tokens.file), 0, read->type, read->tokens};
}

}  // namespace dp::trainer
