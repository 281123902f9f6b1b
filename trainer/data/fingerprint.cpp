// SPDX-License-Identifier: Apache-2.0
//
// The hash by which checkpoints know their data.
#include <algorithm>
#include <array>

#include "trainer/base/sha256.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {
namespace {

// As they have always been: a fingerprint of one of these does not say it, so that old checkpoints fit. MNIST
// had Fashion-MNIST's, and a checkpoint of that time is one of other data.
constexpr std::array kImplied{Affine{}, kFashionMnistNormalise, kSegmentationNormalise};

constexpr std::size_t kPieces = 4096, kPiece = 64;  // bytes of a piece

void add(Sha256& sha, const Matrix& matrix) {
    const std::array<std::int64_t, 3> facts{static_cast<std::int64_t>(matrix.type), matrix.columns,
                                            static_cast<std::int64_t>(matrix.bytes.size())};
    sha.update(facts.data(), sizeof facts);
    const std::size_t size = matrix.bytes.size();
    if (size == 0) return;
    if (size <= kPieces * kPiece) {
        sha.update(matrix.bytes.data(), size);
        return;
    }
    for (std::size_t i = 0; i < kPieces; ++i)
        sha.update(matrix.bytes.data() + (size - kPiece) * i / (kPieces - 1), kPiece);
}

}  // namespace

std::string fingerprint_of(const Split& samples) {
    Sha256 sha;
    sha.update(&samples.count, sizeof samples.count);
    add(sha, samples.features);
    add(sha, samples.targets);
    if (std::find(kImplied.begin(), kImplied.end(), samples.normalise) == kImplied.end())
        sha.update(&samples.normalise, sizeof samples.normalise);
    return hex_of(sha.digest());
}

}  // namespace dp::trainer
