// SPDX-License-Identifier: Apache-2.0
//
// Composed images: their masks are exact, they depend on seed and number alone, and what cannot be composed
// is refused. The sprites are the test's own, so that it knows what must be seen where.
#include "trainer/data/dataset.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "idx_files.hpp"
#include "scratch.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

class SegmentationTest : public ::testing::Test {
 protected:
    Dataset composed(std::int64_t size, std::int64_t count, std::uint64_t seed = 1) const {
        auto data = compose_segmentation(scratch_.path(), size, count, seed);
        EXPECT_TRUE(data) << data.error().message;
        return data ? std::move(*data) : Dataset{};
    }
    Error refusal(std::int64_t size, std::int64_t count) const {
        const auto data = compose_segmentation(scratch_.path(), size, count, 1);
        EXPECT_FALSE(data);
        return data ? Error{} : data.error();
    }
    Scratch scratch_;
};

std::int64_t ones(const Matrix& mask, std::int64_t image) {
    const auto* first = mask.bytes.data() + image * mask.columns;
    return std::count(first, first + mask.columns, 1);
}

TEST_F(SegmentationTest, HasTheShapesThatUnetTakes) {
    write_sprites(scratch_, {0, 5, 1, 7, 2, 9}, std::string(6, '\xff'));
    const Dataset data = composed(256, 16);
    EXPECT_EQ(data.train.count, 16);
    EXPECT_EQ(data.test.count, 2);
    EXPECT_EQ(data.train.features.columns, 3 * 256 * 256);
    EXPECT_EQ(data.train.features.bytes.size(), 16u * 3 * 256 * 256);
    EXPECT_EQ(data.train.targets.columns, 256 * 256);
    EXPECT_EQ(data.train.targets.type, Type::u8);
    for (std::int64_t i = 0; i < 16; ++i) {
        EXPECT_GT(ones(data.train.targets, i), 0) << "image " << i;
        EXPECT_LT(ones(data.train.targets, i), 256 * 256) << "image " << i;
    }
    EXPECT_EQ(composed(512, 1).test.count, 1);
}

// What is seen at a pixel of image 0 .. count-1: the three colours as one number.
std::vector<std::uint32_t> seen(const Dataset& data) {
    std::vector<std::uint32_t> colours;
    for (std::int64_t i = 0; i < data.train.count; ++i) {
        const auto* image = data.train.features.bytes.data() + i * 3 * 65536;
        for (std::int64_t at = 0; at < 65536; ++at)
            colours.push_back(image[at] | std::uint32_t{image[at + 65536]} << 8 |
                              std::uint32_t{image[at + 2 * 65536]} << 16);
    }
    return colours;
}

// Faint sprites are air and leave the ground as it was: so the same images are composed with shoes alone,
// with others alone, with all and with none.
TEST_F(SegmentationTest, TheMaskIsExactlyWhereShoesAreSeen) {
    constexpr char kAir = 39, kBright = '\xff';
    const auto compose_with = [&](char shoes, char others) {
        write_sprites(scratch_, {5, 7, 9, 0, 1, 8}, {shoes, shoes, shoes, others, others, others});
        return composed(256, 16);
    };
    const Dataset none = compose_with(kAir, kAir), shoes = compose_with(kBright, kAir),
                  others = compose_with(kAir, kBright), all = compose_with(kBright, kBright);
    const auto ground = seen(none), with_shoes = seen(shoes), with_others = seen(others),
               with_all = seen(all);
    std::size_t of_shoes = 0, of_others = 0, hidden = 0, lucky = 0;
    for (std::size_t at = 0; at < ground.size(); ++at) {
        EXPECT_EQ(none.train.targets.bytes[at] + others.train.targets.bytes[at], 0);
        const bool is_shoe = shoes.train.targets.bytes[at] == 1;
        if (is_shoe) {
            ++of_shoes;
            lucky += with_shoes[at] == ground[at] ? 1 : 0;  // a sprite of the ground's colour
        } else {
            ASSERT_EQ(with_shoes[at], ground[at]) << "a shoe outside the mask, at " << at;
        }
        // Together: each pixel shows one of the two or the ground, and the mask says which.
        const bool still_shoe = all.train.targets.bytes[at] == 1;
        ASSERT_EQ(with_all[at], still_shoe ? with_shoes[at] : with_others[at]) << at;
        ASSERT_LE(still_shoe, is_shoe);
        of_others += with_others[at] != ground[at] ? 1 : 0;
        hidden += is_shoe && !still_shoe ? 1 : 0;
    }
    EXPECT_GT(of_shoes, ground.size() / 10);
    EXPECT_GT(of_others, ground.size() / 10);
    EXPECT_GT(hidden, 0u) << "nothing lies over a shoe";
    EXPECT_LT(lucky, of_shoes / 1000);
}

TEST_F(SegmentationTest, AnImageDependsOnSeedAndNumberAlone) {
    write_sprites(scratch_, {0, 5, 1, 7, 2, 9}, std::string(6, '\xff'));
    const Dataset some = composed(256, 4), more = composed(256, 8), other = composed(256, 4, 2);
    const auto image = static_cast<std::ptrdiff_t>(3 * 65536);
    EXPECT_TRUE(std::equal(some.train.features.bytes.begin(), some.train.features.bytes.end(),
                           more.train.features.bytes.begin()));
    EXPECT_TRUE(std::equal(some.train.targets.bytes.begin(), some.train.targets.bytes.end(),
                           more.train.targets.bytes.begin()));
    EXPECT_NE(some.train.features.bytes, other.train.features.bytes);
    const auto& bytes = some.train.features.bytes;
    EXPECT_FALSE(std::equal(bytes.begin(), bytes.begin() + image, bytes.begin() + image));
    EXPECT_FALSE(std::equal(some.test.features.bytes.begin(), some.test.features.bytes.begin() + image,
                            bytes.begin()));
}

// Every second pixel of the larger mask is the smaller one's, but for rounding at the edges.
TEST_F(SegmentationTest, LargerImagesShowTheSameScenes) {
    write_sprites(scratch_, {0, 5, 1, 7, 2, 9}, std::string(6, '\xff'));
    const Dataset small = composed(256, 4), large = composed(512, 4);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t y = 0; y < 256; ++y)
            for (std::int64_t x = 0; x < 256; ++x)
                different += small.train.targets.bytes[static_cast<std::size_t>((i * 256 + y) * 256 + x)] !=
                                     large.train.targets
                                         .bytes[static_cast<std::size_t>((i * 512 + 2 * y) * 512 + 2 * x)]
                                 ? 1
                                 : 0;
    EXPECT_LT(different, 4 * 65536 / 25);
}

TEST_F(SegmentationTest, WhatCannotBeComposedIsRefused) {
    EXPECT_EQ(refusal(300, 4).fault, Fault::usage);
    EXPECT_THAT(refusal(300, 4).message,
                HasSubstr("300 pixels a side cannot be composed; give 256, 512 or 1024"));
    EXPECT_THAT(refusal(1024, 1'000'000'000).message, HasSubstr("give fewer --samples"));
    EXPECT_THAT(refusal(256, 4).message, HasSubstr("train-images-idx3-ubyte"));  // no such files
    write_sprites(scratch_, {0, 1, 2}, std::string(3, '\xff'));
    EXPECT_THAT(refusal(256, 4).message, HasSubstr("images of shoes"));
}

}  // namespace
}  // namespace dp::trainer
