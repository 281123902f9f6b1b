// SPDX-License-Identifier: Apache-2.0
//
// The hash by which checkpoints know their data.
#include <algorithm>
#include <array>

#include "trainer/base/sha256.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/sampler.hpp"

namespace dp::trainer {
namespace {

// As they have always been: a fingerprint of one of these does not say it, so that old checkpoints fit. MNIST
// had Fashion-MNIST's, and a checkpoint of that time is one of other data.
constexpr std::array kImplied{Affine{}, kFashionMnistNormalise, kSegmentationNormalise};

constexpr std::int64_t kPieces = 4096, kPiece = 64;  // bytes of a piece
// From here on fewer: each may be a disk's seek, and a set that has a file system of its own is to begin at once, too.
constexpr std::int64_t kManyBytes = std::int64_t{8} << 30;
constexpr std::int64_t kFewPieces = 256;

void add_facts(Sha256& sha, const Matrix& matrix, std::int64_t bytes) {
    const std::array<std::int64_t, 3> facts{static_cast<std::int64_t>(matrix.type), matrix.columns, bytes};
    sha.update(facts.data(), sizeof facts);
}

void add(Sha256& sha, const Matrix& matrix) {
    const auto size = static_cast<std::int64_t>(matrix.bytes.size());
    add_facts(sha, matrix, size);
    for (const auto& [at, bytes] : pieces_of(size, false))
        sha.update(matrix.bytes.data() + at, static_cast<std::size_t>(bytes));
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> pieces_of(std::int64_t size, bool is_read) {
    if (size == 0) return {};
    if (size <= kPieces * kPiece) return {{0, size}};
    const std::int64_t pieces = is_read && size > kManyBytes ? kFewPieces : kPieces;
    std::vector<std::pair<std::int64_t, std::int64_t>> places;
    for (std::int64_t i = 0; i < pieces; ++i) places.emplace_back((size - kPiece) * i / (pieces - 1), kPiece);
    return places;
}

std::string fingerprint_of(const Split& samples) {
    Sha256 sha;
    sha.update(&samples.count, sizeof samples.count);
    if (samples.streamed) {
        add_facts(sha, samples.features, samples.streamed->bytes);
        sha.update(samples.streamed->spread.data(), samples.streamed->spread.size());
    } else {
        add(sha, samples.features);
    }
    add(sha, samples.targets);
    // Older trainers took so many in another order.
    if (samples.count > kMostListed) sha.update("permuted", 8);
    if (std::find(kImplied.begin(), kImplied.end(), samples.normalise) == kImplied.end())
        sha.update(&samples.normalise, sizeof samples.normalise);
    return hex_of(sha.digest());
}

}  // namespace dp::trainer
