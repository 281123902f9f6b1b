// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.hpp"

#include <gtest/gtest.h>

#include "patterns.hpp"
#include "trainer/base/sha256.hpp"

namespace dp::trainer {
namespace {

// FIPS 180-4's example.
TEST(Sha256, IsTheOneOfTheStandard) {
    Sha256 sha;
    sha.update("a", 1);
    sha.update("bc", 2);
    EXPECT_EQ(hex_of(sha.digest()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hex_of(sha.digest()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Fingerprint, IsTheSameForTheSameSamplesAlone) {
    const Split samples = patterns(1500, 2);
    const std::string fingerprint = fingerprint_of(samples);
    EXPECT_EQ(fingerprint_of(patterns(1500, 2)), fingerprint);
    EXPECT_NE(fingerprint_of(patterns(1500, 3)), fingerprint);
    EXPECT_NE(fingerprint_of(patterns(1499, 2)), fingerprint);
    Split other = samples;
    other.targets.bytes[3] ^= 1;
    EXPECT_NE(fingerprint_of(other), fingerprint);
    other = samples;
    other.targets.type = Type::f32;
    EXPECT_NE(fingerprint_of(other), fingerprint);
}

// Checkpoints of MNIST from when it was normalised as Fashion-MNIST are of other data; all others of that
// time still fit.
TEST(Fingerprint, IsOfTheNumbersThatAModelSees) {
    Split samples = patterns(10, 2);
    samples.normalise = {};
    const std::string before_it_counted = fingerprint_of(samples);
    samples.normalise = kFashionMnistNormalise;
    EXPECT_EQ(fingerprint_of(samples), before_it_counted);
    samples.normalise = kSegmentationNormalise;
    EXPECT_EQ(fingerprint_of(samples), before_it_counted);
    samples.normalise = normalised_by(0.1307f, 0.3081f);
    EXPECT_NE(fingerprint_of(samples), before_it_counted);
}

// Also where they are too many to read all of them.
TEST(Fingerprint, SeesTheFirstAndTheLastOfMany) {
    const Split samples = patterns(1500, 2);
    for (const std::size_t at : {std::size_t{0}, samples.features.bytes.size() - 1}) {
        Split other = samples;
        other.features.bytes[at] ^= 1;
        EXPECT_NE(fingerprint_of(other), fingerprint_of(samples)) << at;
    }
}

TEST(Fingerprint, ReadsTargetsThatAreNotThere) {
    Split samples = patterns(10, 2);
    samples.targets.bytes.clear();
    EXPECT_NE(fingerprint_of(samples), fingerprint_of(patterns(10, 2)));
}

}  // namespace
}  // namespace dp::trainer
