// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_shard.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "trainer/base/files.hpp"

namespace dp::trainer {

static_assert(std::endian::native == std::endian::little,
              "shards are read and written as they lie in memory");

using Header = std::array<std::int32_t, 256>;
constexpr std::int32_t kMagic = 20240520, kVersion = 1;

std::string shard_header(std::size_t tokens) {
    const Header header{kMagic, kVersion, static_cast<std::int32_t>(tokens)};
    return {reinterpret_cast<const char*>(header.data()), sizeof header};
}

Result<void> write_shard(const std::filesystem::path& file, std::span<const Token> tokens) {
    std::string contents = shard_header(tokens.size());
    contents.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
    return write_file(file, contents);
}

Result<void> read_shard(const std::filesystem::path& file, std::vector<Token>& tokens) {
    const auto contents = DP_TRY(read_file(file));
    const auto refuse = [&](const std::string& reason) {
        return fail(Fault::usage, "{}: {}; make it again with `trainer prepare`", file.string(), reason);
    };
    Header header{};
    if (contents.size() < sizeof header) return refuse("cut short within the header");
    std::memcpy(header.data(), contents.data(), sizeof header);
    if (header[0] != kMagic)
        return refuse(
            fmt::format("not a file of GPT-2 tokens (it begins with {}, not {})", header[0], kMagic));
    if (header[1] != kVersion)
        return refuse(fmt::format("version {}, but this trainer reads version {}", header[1], kVersion));
    const std::size_t bytes = contents.size() - sizeof header;
    if (header[2] <= 0 || bytes != static_cast<std::size_t>(header[2]) * sizeof(Token))
        return refuse(fmt::format("the header says {} tokens, but {} bytes follow", header[2], bytes));
    const std::size_t before = tokens.size();
    tokens.resize(before + static_cast<std::size_t>(header[2]));
    std::memcpy(tokens.data() + before, contents.data() + sizeof header, bytes);
    return {};
}

}  // namespace dp::trainer
