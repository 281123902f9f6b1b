// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_shard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>

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

Result<ShardFile> ShardFile::create(const std::filesystem::path& file) {
    auto created = DP_TRY(DurableFile::create(file, Fault::prepare));
    const std::string header = shard_header(0);
    DP_TRY(created.write(header.data(), header.size()));
    return ShardFile(file, std::move(created));
}

Result<void> ShardFile::write(std::span<const Token> tokens) {
    tokens_ += tokens.size();
    return file_.write(tokens.data(), tokens.size_bytes());
}

Result<void> ShardFile::finish() {
    DP_TRY(file_.finish());
    const std::string header = shard_header(tokens_);
    const Fd again(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!again ||
        ::pwrite(again.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
        ::fsync(again.get()) != 0)
        return fail_with_errno(Fault::prepare, path_.string());
    return {};
}

Result<TokenRun> open_shard(const std::filesystem::path& file) {
    const auto refuse = [&](const std::string& reason) {
        return fail(Fault::usage, "{}: {}; make it again with `trainer prepare`", file.string(), reason);
    };
    auto opened = open_sized(file);
    if (!opened) return tl::unexpected(opened.error());
    Header header{};
    if (opened->bytes < static_cast<std::int64_t>(sizeof header))
        return refuse("cut short within the header");
    if (const auto read = read_at(opened->file, 0, header.data(), sizeof header); !read)
        return refuse(read.error().message);
    if (header[0] != kMagic)
        return refuse(
            fmt::format("not a file of GPT-2 tokens (it begins with {}, not {})", header[0], kMagic));
    if (header[1] != kVersion)
        return refuse(fmt::format("version {}, but this trainer reads version {}", header[1], kVersion));
    const std::int64_t bytes = opened->bytes - static_cast<std::int64_t>(sizeof header);
    if (header[2] <= 0 || bytes != header[2] * static_cast<std::int64_t>(sizeof(Token)))
        return refuse(fmt::format("the header says {} tokens, but {} bytes follow", header[2], bytes));
    return TokenRun{file, std::move(opened->file), sizeof header, StoredAs::u16, header[2]};
}

}  // namespace dp::trainer
