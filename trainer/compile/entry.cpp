// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/entry.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <ctime>

#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are written as they lie in memory");

using Json = nlohmann::json;

constexpr std::array<char, 8> kMagic{'d', 'p', 'c', 'a', 'c', 'h', 'e', '3'};
constexpr std::uint64_t kMostText = std::uint64_t{16} << 20;

struct Begin {
    std::array<char, 8> magic;
    std::uint64_t text_bytes, text_checksum;
};

// Against damage, not attackers; and several times as fast as reading the numbers.
std::uint64_t checksum_of(const void* bytes, std::size_t count) {
    return crc32_z(0, static_cast<const Bytef*>(bytes), count);
}

}  // namespace

std::string file_name(const CacheKey& key) {
    return fmt::format("{}-{}.cache", key.kind, sha256(text_of(key.what)));
}

std::string text_of(const Facts& facts) {
    std::string text;
    for (const auto& [name, value] : facts) text += fmt::format("{}={}:{};", name, value.size(), value);
    return text;
}

std::string difference(const Facts& from, const Facts& other) {
    Facts all = from;
    all.insert(other.begin(), other.end());
    std::string names;
    for (const auto& [name, value] : all) {
        const auto a = from.find(name), b = other.find(name);
        const bool is_same = a != from.end() && b != other.end() && a->second == b->second;
        if (!is_same) names += (names.empty() ? "" : ", ") + name;
    }
    return names;
}

Result<void> write_entry(const std::filesystem::path& file, const CacheKey& key, const Json& content,
                         std::span<const Block> blocks) {
    Json places = Json::array();
    for (const Block& block : blocks)
        places.push_back({{"bytes", block.size()}, {"checksum", checksum_of(block.data(), block.size())}});
    const std::string text =
        Json{{"kind", key.kind},   {"written", std::time(nullptr)}, {"what", key.what}, {"from", key.from},
             {"content", content}, {"blocks", std::move(places)}}
            .dump();
    const Begin begin{kMagic, text.size(), checksum_of(text.data(), text.size())};
    auto out = DP_TRY(DurableFile::create(file));
    DP_TRY(out.write(&begin, sizeof begin));
    DP_TRY(out.write(text.data(), text.size()));
    for (const Block& block : blocks) DP_TRY(out.write(block.data(), block.size()));
    return out.finish();
}

Try<Entry> open_entry(const std::filesystem::path& file) {
    Entry entry;
    entry.file = DP_TRY(open_regular(file));
    struct stat facts {};
    if (::fstat(entry.file.get(), &facts) != 0) return dp::fail(errno_text(errno));
    entry.bytes = facts.st_size;
    entry.used = facts.st_mtim.tv_sec;
    Begin begin{};
    DP_TRY(read_at(entry.file, 0, &begin, sizeof begin));
    if (begin.magic != kMagic) return dp::fail("no entry of this cache, or of another version");
    if (begin.text_bytes > kMostText) return dp::fail("damaged");
    std::string text(begin.text_bytes, '\0');
    DP_TRY(read_at(entry.file, sizeof begin, text.data(), text.size()));
    if (checksum_of(text.data(), text.size()) != begin.text_checksum) return dp::fail("damaged");
    try {
        const Json json = Json::parse(text);
        entry.key = {json.at("kind"), json.at("what"), json.at("from")};
        entry.written = json.at("written");
        entry.content = json.at("content");
        auto at = static_cast<std::int64_t>(sizeof begin + text.size());
        for (const Json& block : json.at("blocks")) {
            const std::int64_t bytes = block.at("bytes");
            if (bytes < 0 || bytes > entry.bytes - at) return dp::fail("cut short");
            entry.blocks.push_back({at, bytes, block.at("checksum")});
            at += bytes;
        }
        if (at != entry.bytes) return dp::fail("damaged");
    } catch (const Json::exception&) {
        return dp::fail("damaged");
    }
    return entry;
}

Try<std::vector<std::uint8_t>> read_block(const Entry& entry, std::size_t block) {
    const Entry::Place& place = entry.blocks[block];
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(place.bytes));
    DP_TRY(read_at(entry.file, place.at, bytes.data(), bytes.size()));
    if (checksum_of(bytes.data(), bytes.size()) != place.checksum) return dp::fail("damaged");
    return bytes;
}

}  // namespace dp::trainer
