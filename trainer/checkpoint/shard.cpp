// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>

#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/checkpoint/directory.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are little-endian, and copied as they are");

constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // numbers that the host holds at a time
constexpr auto kNumber = static_cast<std::int64_t>(sizeof(float));

tl::unexpected<Error> unreadable(const fs::path& checkpoint, const std::string& name,
                                 const std::string& why) {
    return damaged(checkpoint, fmt::format("has {}, which cannot be read: {}", name, why));
}

// Reads a vector's numbers from whichever shards have them.
class Reader {
 public:
    Reader(const fs::path& checkpoint, const Manifest& manifest, std::size_t vector)
        : checkpoint_(checkpoint), manifest_(manifest), vector_(vector) {}

    Result<void> read(std::int64_t first, std::span<float> out) const {
        const auto count = static_cast<std::int64_t>(out.size());
        const std::int64_t world = manifest_.world(), elements = manifest_.vectors[vector_].elements;
        for (std::int64_t rank = 0; rank < world; ++rank) {
            const Shard shard = shard_of(elements, rank, world);
            const std::int64_t from = std::max(first, shard.first);
            const std::int64_t to = std::min(first + count, shard.first + shard.count);
            if (from >= to) continue;
            if (auto done = read_from(rank, from - shard.first, out.data() + (from - first), to - from);
                !done)
                return done;
        }
        return {};
    }

 private:
    const fs::path& checkpoint_;
    const Manifest& manifest_;
    std::size_t vector_;

    // Reads from number `skip` of the vector's part in the rank's shard on.
    Result<void> read_from(std::int64_t rank, std::int64_t skip, float* out, std::int64_t count) const {
        const std::vector<StoredVector> before(
            manifest_.vectors.begin(), manifest_.vectors.begin() + static_cast<std::ptrdiff_t>(vector_));
        std::int64_t at = shard_bytes(before, rank, manifest_.world()) + skip * kNumber;
        const std::string name = shard_name(rank, manifest_.world());
        const auto in = open_regular(checkpoint_ / name);
        if (!in) return unreadable(checkpoint_, name, in.error().message);
        auto* to = reinterpret_cast<char*>(out);
        for (std::int64_t left = count * kNumber; left > 0;) {
            const ssize_t got = ::pread(in->get(), to, static_cast<std::size_t>(left), at);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return unreadable(checkpoint_, name, got == 0 ? "it is cut" : std::strerror(errno));
            to += got;
            at += got;
            left -= got;
        }
        return {};
    }
};

// Copies the stored numbers from `stored` on to the numbers [at, at + count) of the vector, as far as this
// rank holds them, piece by piece.
Result<void> copy(const Reader& reader, std::int64_t stored, const Vector& to, std::int64_t at,
                  std::int64_t count, Device& device) {
    const std::int64_t from = std::max(at, to.first),
                       end = std::min(at + count, to.first + to.numbers.elements());
    if (from >= end) return {};
    std::vector<float> chunk(static_cast<std::size_t>(std::min(kChunk, end - from)));
    for (std::int64_t next = from; next < end; next += kChunk) {
        const std::int64_t numbers = std::min(kChunk, end - next);
        if (auto read = reader.read(stored + (next - at), {chunk.data(), static_cast<std::size_t>(numbers)});
            !read)
            return read;
        device.upload(chunk.data(), to.part(next, numbers));
        device.synchronize();  // the chunk is used again
    }
    return device.status();
}

}  // namespace

std::int64_t shard_bytes(const std::vector<StoredVector>& vectors, std::int64_t rank, std::int64_t world) {
    std::int64_t numbers = 0;
    for (const auto& vector : vectors) numbers += shard_of(vector.elements, rank, world).count;
    return numbers * kNumber;
}

Result<WrittenShard> write_shard(const fs::path& file, const std::vector<Vector>& vectors, std::int64_t rank,
                                 std::int64_t world, Device& device) {
    auto out = DP_TRY(DurableFile::create(file));
    Sha256 sha;
    bool is_finite = true;
    std::vector<float> chunk(static_cast<std::size_t>(kChunk));
    for (const auto& vector : vectors) {
        const Shard shard = shard_of(vector.elements(), rank, world);
        for (std::int64_t done = 0; done < shard.count; done += kChunk) {
            const std::int64_t numbers = std::min(kChunk, shard.count - done);
            device.download(vector.part(shard.first + done, numbers), chunk.data());
            const auto bytes = static_cast<std::size_t>(numbers * kNumber);
            sha.update(chunk.data(), bytes);
            is_finite &= std::all_of(chunk.begin(), chunk.begin() + numbers,
                                     [](float number) { return std::isfinite(number); });
            DP_TRY(out.write(chunk.data(), bytes));
        }
    }
    DP_TRY(device.status());
    DP_TRY(out.finish());
    return WrittenShard{sha.digest(), is_finite};
}

Result<void> verify_shard(const fs::path& checkpoint, const Manifest& manifest, std::int64_t rank) {
    const std::string name = shard_name(rank, manifest.world());
    const auto in = open_regular(checkpoint / name);
    if (std::error_code ignored; !in && !fs::exists(checkpoint / name, ignored))
        return damaged(checkpoint, fmt::format("lacks {}", name));
    if (!in) return unreadable(checkpoint, name, in.error().message);
    Sha256 sha;
    std::vector<char> chunk(static_cast<std::size_t>(kChunk * kNumber));
    std::int64_t bytes = 0;
    for (;;) {
        const ssize_t got = ::read(in->get(), chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(checkpoint, name, std::strerror(errno));
        if (got == 0) break;
        sha.update(chunk.data(), static_cast<std::size_t>(got));
        bytes += got;
    }
    if (const auto right = shard_bytes(manifest.vectors, rank, manifest.world()); bytes != right)
        return damaged(checkpoint,
                       fmt::format("is damaged: {} has {} bytes instead of {}", name, bytes, right));
    if (hex_of(sha.digest()) != manifest.shards[static_cast<std::size_t>(rank)].sha256)
        return damaged(checkpoint,
                       fmt::format("is damaged: {} has not the SHA-256 that the manifest says", name));
    return {};
}

Result<void> read_vectors(const fs::path& checkpoint, const Manifest& manifest, const std::vector<Place>& now,
                          const std::vector<Vector>& vectors, Device& device) {
    for (const auto& vector : vectors) {
        const auto stored = std::find_if(manifest.vectors.begin(), manifest.vectors.end(),
                                         [&](const auto& one) { return one.name == vector.name; });
        if (stored == manifest.vectors.end()) return damaged(checkpoint, "lacks " + vector.name);
        const Reader reader(checkpoint, manifest,
                            static_cast<std::size_t>(stored - manifest.vectors.begin()));
        if (!vector.of_parameters) {
            if (stored->elements != vector.elements())
                return damaged(checkpoint, fmt::format("has {} of {} numbers instead of {}", vector.name,
                                                       stored->elements, vector.elements()));
            DP_TRY(copy(reader, 0, vector, 0, stored->elements, device));
            continue;
        }
        for (std::size_t i = 0; i < now.size(); ++i) {
            const std::int64_t count = elements_of(now[i].shape),
                               then = manifest.training.parameters[i].first;
            if (count > stored->elements - then)
                return damaged(checkpoint,
                               fmt::format("is damaged: {} ends before {}", vector.name, now[i].name));
            DP_TRY(copy(reader, then, vector, now[i].first, count, device));
        }
    }
    return {};
}

}  // namespace dp::trainer
