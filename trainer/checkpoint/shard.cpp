// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>

#include "trainer/base/files.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/gathered_numbers.hpp"

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

// Reads a vector's numbers from `first` on, from whichever shards have them. `vector`: its index.
Result<void> read_numbers(const fs::path& checkpoint, const Manifest& manifest, std::size_t vector,
                          std::int64_t first, std::span<float> out) {
    const auto place = manifest.vectors.begin() + static_cast<std::ptrdiff_t>(vector);
    const std::vector<StoredVector> before(manifest.vectors.begin(), place);
    const auto count = static_cast<std::int64_t>(out.size()), world = manifest.world();
    for (std::int64_t rank = 0; rank < world; ++rank) {
        const Shard shard = shard_of(place->elements, rank, world);
        const std::int64_t from = std::max(first, shard.first);
        const std::int64_t to = std::min(first + count, shard.first + shard.count);
        if (from >= to) continue;
        const std::string name = shard_name(rank, world);
        const auto in = open_regular(checkpoint / name);
        if (!in) return unreadable(checkpoint, name, in.error().message);
        const std::int64_t at = shard_bytes(before, rank, world) + (from - shard.first) * kNumber;
        const auto done =
            read_at(*in, at, out.data() + (from - first), static_cast<std::size_t>((to - from) * kNumber));
        if (!done) return unreadable(checkpoint, name, done.error().message);
    }
    return {};
}

// Copies stored numbers from `stored` on to [at, at + count) of the vector, as far as this rank holds them.
Result<void> copy(const fs::path& checkpoint, const Manifest& manifest, std::size_t vector,
                  std::int64_t stored, const Vector& to, std::int64_t at, std::int64_t count,
                  Device& device) {
    const std::int64_t from = std::max(at, to.first),
                       end = std::min(at + count, to.first + to.numbers.elements());
    if (from >= end) return {};
    std::vector<float> chunk(static_cast<std::size_t>(std::min(kChunk, end - from)));
    for (std::int64_t next = from; next < end; next += kChunk) {
        const std::int64_t numbers = std::min(kChunk, end - next);
        const std::span part(chunk.data(), static_cast<std::size_t>(numbers));
        DP_TRY(read_numbers(checkpoint, manifest, vector, stored + (next - at), part));
        device.upload(chunk.data(), to.part(next, numbers));
        device.synchronize();  // the chunk is used again
    }
    return device.status();
}

// The same of a part of a parameter, whose stored numbers begin at `stored`: in whole rows, which may be cut into short pieces.
Result<void> copy_part(const fs::path& checkpoint, const Manifest& manifest, std::size_t vector,
                       std::int64_t stored, const Vector& to, const PlacedPart& placed, Device& device) {
    const Shape& whole = placed.part.whole;
    const std::int64_t length = elements_of(whole) / whole.at(0),
                       most = std::max<std::int64_t>(kChunk / length, 1);
    std::vector<float> rows;
    std::int64_t at = placed.first;
    for (const Shard& range : placed.part.rows) {
        for (std::int64_t done = 0; done < range.count; done += most) {
            const std::int64_t count = std::min(most, range.count - done);
            const std::int64_t end = at + count * placed.part.columns.count;
            const std::int64_t from = std::max(at, to.first),
                               until = std::min(end, to.first + to.numbers.elements());
            if (from < until) {
                rows.resize(static_cast<std::size_t>(count * length));
                DP_TRY(
                    read_numbers(checkpoint, manifest, vector, stored + (range.first + done) * length, rows));
                const auto here = taken_from(rows, {{count, length}, {{0, count}}, placed.part.columns});
                device.upload(here.data() + (from - at), to.part(from, until - from));
                device.synchronize();  // the numbers go
            }
            at = end;
        }
    }
    return device.status();
}

// This rank's numbers of its shard, piece by piece. The next piece comes from the device while the caller is at one.
class Pieces {
 public:
    Pieces(const std::vector<Vector>& vectors, std::int64_t rank, std::int64_t world, Device& device) {
        std::size_t largest = 0;
        for (const Vector& vector : vectors) {
            const Shard shard = shard_of(vector.elements(), rank, world);
            for (std::int64_t done = 0; done < shard.count; done += kChunk) {
                pieces_.push_back(vector.part(shard.first + done, std::min(kChunk, shard.count - done)));
                largest = std::max(largest, pieces_.back().bytes());
            }
        }
        for (auto& one : downloads_) one = device.make_download(largest);
        start();
    }

    bool has_more() const { return next_ < pieces_.size(); }
    // Valid until the next call.
    std::span<const float> next() {
        Download& here = download();
        ++next_;
        start();
        const auto bytes = here.wait();
        return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
    }

 private:
    std::vector<Tensor> pieces_;
    std::size_t next_ = 0;
    std::array<std::unique_ptr<Download>, 2> downloads_;  // of two pieces at a time

    Download& download() { return *downloads_[next_ % downloads_.size()]; }
    void start() {
        if (has_more()) download().start(pieces_[next_]);
    }
};

// Calls take() with this rank's numbers of its shard, piece by piece, while it returns true; where ranks divide the model, to the end.
template <typename Take>
Result<void> for_each_piece(const std::vector<Vector>& vectors, std::int64_t rank, std::int64_t world,
                            Device& device, GatheredNumbers* gathered, Take take) {
    if (gathered != nullptr) {
        const std::int64_t chunk = gathered->most_at_once();
        for (const auto& vector : vectors)
            for (std::int64_t done = 0; done < largest_shard(vector.elements(), world); done += chunk)
                take(DP_TRY(gathered->of_shard(vector, done, chunk)));
    } else {
        Pieces pieces(vectors, rank, world, device);
        while (pieces.has_more() && take(pieces.next())) {
        }
    }
    return device.status();
}

class ShardWriter {
 public:
    explicit ShardWriter(Result<DurableFile> out) : out_(std::move(out)) {
        if (!out_) written_ = tl::unexpected(out_.error());
    }
    // False if it cannot be written.
    bool take(std::span<const float> numbers) {
        sha_.update(numbers.data(), numbers.size_bytes());
        is_finite_ &= std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
        if (written_ && !numbers.empty()) written_ = out_->write(numbers.data(), numbers.size_bytes());
        return written_.has_value();
    }
    // So far. False if it cannot be written.
    bool sync() {
        if (written_) written_ = out_->sync();
        return written_.has_value();
    }
    Result<WrittenShard> finish() {
        DP_TRY(written_);
        DP_TRY(out_->finish());
        return WrittenShard{sha_.digest(), is_finite_};
    }

 private:
    Result<DurableFile> out_;
    Result<void> written_;
    Sha256 sha_;
    bool is_finite_ = true;
};

}  // namespace

std::int64_t shard_bytes(const std::vector<StoredVector>& vectors, std::int64_t rank, std::int64_t world) {
    std::int64_t numbers = 0;
    for (const auto& vector : vectors) numbers += shard_of(vector.elements, rank, world).count;
    return numbers * kNumber;
}

Result<WrittenShard> write_shard(const fs::path& file, const std::vector<Vector>& vectors, std::int64_t rank,
                                 std::int64_t world, Device& device, GatheredNumbers* gathered) {
    ShardWriter writer(DurableFile::create(file));
    DP_TRY(for_each_piece(vectors, rank, world, device, gathered,
                          [&](std::span<const float> numbers) { return writer.take(numbers); }));
    return writer.finish();
}

Result<void> copy_shard(const std::vector<Vector>& vectors, std::int64_t rank, std::int64_t world,
                        Device& device, GatheredNumbers* gathered, std::vector<float>& to) {
    to.clear();
    std::int64_t all = 0;
    for (const auto& vector : vectors) all += shard_of(vector.elements(), rank, world).count;
    to.reserve(static_cast<std::size_t>(all));
    return for_each_piece(vectors, rank, world, device, gathered, [&](std::span<const float> numbers) {
        to.insert(to.end(), numbers.begin(), numbers.end());
        return true;
    });
}

Result<WrittenShard> write_copied_shard(DurableFile out, std::span<const float> numbers,
                                        const std::stop_token& stop) {
    constexpr std::size_t kSynced = std::size_t{8} << 20;  // numbers: who asks to stop waits for them
    ShardWriter writer(std::move(out));
    for (std::size_t done = 0; done < numbers.size();) {
        if (stop.stop_requested()) return fail(Fault::checkpoint, "the training ended before it was written");
        const auto piece =
            numbers.subspan(done, std::min(numbers.size() - done, static_cast<std::size_t>(kChunk)));
        done += piece.size();
        if (!writer.take(piece) || (done % kSynced == 0 && !writer.sync())) break;
    }
    if (stop.stop_requested()) return fail(Fault::checkpoint, "the training ended before it was written");
    return writer.finish();
}

Result<void> verify_shard(const fs::path& checkpoint, const Manifest& manifest, std::int64_t rank) {
    const std::string name = shard_name(rank, manifest.world());
    const auto in = open_regular(checkpoint / name);
    if (std::error_code ignored; !in && !fs::exists(checkpoint / name, ignored))
        return damaged(checkpoint, fmt::format("lacks {}", name));
    struct stat facts {};
    if (!in || ::fstat(in->get(), &facts) != 0)
        return unreadable(checkpoint, name, in ? std::strerror(errno) : in.error().message);
    const std::int64_t bytes = facts.st_size, right = shard_bytes(manifest.vectors, rank, manifest.world());
    if (bytes != right)
        return damaged(checkpoint,
                       fmt::format("is damaged: {} has {} bytes instead of {}", name, bytes, right));
    Sha256 sha;
    std::vector<char> chunk(static_cast<std::size_t>(kChunk * kNumber));
    for (std::int64_t at = 0; at < bytes; at += kChunk * kNumber) {
        const auto count = static_cast<std::size_t>(std::min(kChunk * kNumber, bytes - at));
        const auto done = read_at(*in, at, chunk.data(), count);
        if (!done) return unreadable(checkpoint, name, done.error().message);
        sha.update(chunk.data(), count);
    }
    if (hex_of(sha.digest()) != manifest.shards[static_cast<std::size_t>(rank)].sha256)
        return damaged(checkpoint,
                       fmt::format("is damaged: the SHA-256 of {} is not the one in the manifest", name));
    return {};
}

Result<std::vector<float>> read_parameter(const fs::path& checkpoint, const Manifest& manifest,
                                          std::size_t number, std::string_view vector) {
    const Place& place = manifest.training.parameters.at(number);
    const std::string_view name = place.is_frozen ? "values" : vector;
    const auto values = std::ranges::find(manifest.vectors, name, &StoredVector::name);
    if (values == manifest.vectors.end()) return damaged(checkpoint, fmt::format("lacks {}", name));
    if (elements_of(place.shape) > values->elements - place.first)
        return damaged(checkpoint, fmt::format("is damaged: {} ends before {}", name, place.name));
    std::vector<float> numbers(static_cast<std::size_t>(elements_of(place.shape)));
    DP_TRY(read_numbers(checkpoint, manifest, static_cast<std::size_t>(values - manifest.vectors.begin()),
                        place.first, numbers));
    return numbers;
}

Result<void> read_vectors(const fs::path& checkpoint, const Manifest& manifest,
                          const std::vector<PlacedPart>& now, const std::vector<Vector>& vectors,
                          Device& device) {
    for (const auto& vector : vectors) {
        const auto stored = std::find_if(manifest.vectors.begin(), manifest.vectors.end(),
                                         [&](const auto& one) { return one.name == vector.name; });
        if (stored == manifest.vectors.end()) return damaged(checkpoint, "lacks " + vector.name);
        const auto index = static_cast<std::size_t>(stored - manifest.vectors.begin());
        if (!vector.of_parameters) {
            if (stored->elements != vector.elements())
                return damaged(checkpoint, fmt::format("has {} of {} numbers instead of {}", vector.name,
                                                       stored->elements, vector.elements()));
            DP_TRY(copy(checkpoint, manifest, index, 0, vector, 0, stored->elements, device));
            continue;
        }
        for (std::size_t i = 0; i < now.size(); ++i) {
            if (vector.name != "values" && manifest.training.parameters[i].is_frozen) continue;
            const std::int64_t count = elements_of(now[i].part.whole),
                               then = manifest.training.parameters[i].first;
            if (count > stored->elements - then)
                return damaged(checkpoint,
                               fmt::format("is damaged: {} ends before {}", vector.name, now[i].name));
            DP_TRY(now[i].part.is_whole()
                       ? copy(checkpoint, manifest, index, then, vector, now[i].first, count, device)
                       : copy_part(checkpoint, manifest, index, then, vector, now[i], device));
        }
    }
    return {};
}

}  // namespace dp::trainer
