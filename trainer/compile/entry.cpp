// SPDX-License-Identifier: Apache-2.0
//
// See entry.hpp.
#include "trainer/compile/entry.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are written as they lie in memory");

using Json = nlohmann::json;

constexpr std::array<char, 8> kMagic{'d', 'p', 'c', 'a', 'c', 'h', 'e', '2'};
constexpr std::int64_t kPage = 4096;
constexpr std::uint64_t kMostText = std::uint64_t{16} << 20;

struct Begin {
    std::array<char, 8> magic;
    std::uint64_t text_bytes, text_checksum;
};

std::int64_t next_page(std::int64_t at) {
    return (at + kPage - 1) / kPage * kPage;
}

// Against damage, not attackers; and several times as fast as reading the numbers.
std::uint64_t checksum_of(const void* bytes, std::size_t count) {
    return crc32_z(0, static_cast<const Bytef*>(bytes), count);
}

// Reads exactly `count` bytes, or says why not.
Result<void> read_at(int fd, std::int64_t at, void* to, std::size_t count) {
    auto* next = static_cast<char*>(to);
    while (count > 0) {
        const ssize_t got = ::pread(fd, next, count, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(Fault::usage, std::strerror(errno));
        if (got == 0) return fail(Fault::usage, "cut short");
        next += got;
        at += got;
        count -= static_cast<std::size_t>(got);
    }
    return {};
}

// Older ones have numbers and lists among them.
Facts facts_of(const Json& json) {
    Facts facts;
    for (const auto& [name, value] : json.items())
        facts[name] = value.is_string() ? value.get<std::string>() : value.dump();
    return facts;
}

}  // namespace

Entry::Entry() : content_(std::make_unique<Json>()) {}
Entry::~Entry() = default;
Entry::Entry(Entry&&) noexcept = default;
Entry& Entry::operator=(Entry&&) noexcept = default;

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
    std::int64_t at = 0;
    Result<void> done;
    const auto write = [&](const void* bytes, std::size_t count) {
        if (done) done = out.write(bytes, count);
        at += static_cast<std::int64_t>(count);
    };
    write(&begin, sizeof begin);
    write(text.data(), text.size());
    const std::array<char, kPage> nothing{};
    for (const Block& block : blocks) {
        write(nothing.data(), static_cast<std::size_t>(next_page(at) - at));
        write(block.data(), block.size());
    }
    return done ? out.finish() : done;
}

Result<Entry> Entry::open(const std::filesystem::path& file) {
    Entry entry;
    auto opened = open_regular(file);
    if (!opened) return fail(Fault::usage, opened.error().message);
    entry.fd_ = std::move(*opened);
    struct stat facts {};
    if (::fstat(entry.fd_.get(), &facts) != 0) return fail(Fault::usage, std::strerror(errno));
    entry.bytes_ = facts.st_size;
    Begin begin{};
    DP_TRY(read_at(entry.fd_.get(), 0, &begin, sizeof begin));
    if (begin.magic != kMagic) return fail(Fault::usage, "no entry of this cache, or of another version");
    if (begin.text_bytes > kMostText) return fail(Fault::usage, "damaged");
    std::string text(begin.text_bytes, '\0');
    DP_TRY(read_at(entry.fd_.get(), sizeof begin, text.data(), text.size()));
    if (checksum_of(text.data(), text.size()) != begin.text_checksum) return fail(Fault::usage, "damaged");
    try {
        const Json json = Json::parse(text);
        entry.key_ = {json.at("kind"), facts_of(json.at("what")), facts_of(json.at("from"))};
        entry.written_ = json.at("written");
        *entry.content_ = json.at("content");
        auto at = static_cast<std::int64_t>(sizeof begin + text.size());
        for (const Json& block : json.at("blocks")) {
            const Place place{next_page(at), block.at("bytes"), block.at("checksum")};
            if (place.bytes < 0) return fail(Fault::usage, "damaged");
            if (place.bytes > entry.bytes_) return fail(Fault::usage, "cut short");
            at = place.at + place.bytes;
            entry.blocks_.push_back(place);
        }
        if (at != entry.bytes_) return fail(Fault::usage, at > entry.bytes_ ? "cut short" : "damaged");
    } catch (const Json::exception&) {
        return fail(Fault::usage, "damaged");
    }
    return entry;
}

Result<std::vector<std::uint8_t>> Entry::read(std::size_t block) const {
    const Place& place = blocks_[block];
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(place.bytes));
    DP_TRY(read_at(fd_.get(), place.at, bytes.data(), bytes.size()));
    if (checksum_of(bytes.data(), bytes.size()) != place.checksum) return fail(Fault::usage, "damaged");
    return bytes;
}

}  // namespace dp::trainer
