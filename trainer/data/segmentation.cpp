// SPDX-License-Identifier: Apache-2.0
//
// Pixel arithmetic uses integers only, so that every machine composes the same bytes.
#include "trainer/data/dataset.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "trainer/base/random.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kSpriteSide = 28;  // of a sprite, in pixels of its own
constexpr int kLeastSprites = 3, kMostSprites = 8;
constexpr float kLeastScale = 2, kMostScale = 6;  // of a sprite, at 256 x 256
constexpr int kShoes = 40;                        // of 100 sprites
// Fainter pixels of a sprite are transparent: its background is black, with some stray light.
constexpr int kOpaque = 40;
constexpr int kNoise = 16;  // the ground's pixels differ by up to half of that, either way

using Colour = std::array<int, 3>;

bool is_shoe(std::int32_t label) {
    return label == 5 || label == 7 || label == 9;  // sandal, sneaker, ankle boot
}

// The sprites from one part of Fashion-MNIST.
struct Wardrobe {
    const Split& images;
    std::vector<std::int64_t> shoes, others;

    explicit Wardrobe(const Split& samples) : images(samples) {
        for (std::int64_t i = 0; i < samples.count; ++i) {
            std::int32_t label = 0;
            std::memcpy(&label, samples.targets.bytes.data() + static_cast<std::size_t>(i) * sizeof label,
                        sizeof label);
            (is_shoe(label) ? shoes : others).push_back(i);
        }
    }
    const std::uint8_t* pixels(std::int64_t image) const {
        return images.features.bytes.data() + image * kSpriteSide * kSpriteSide;
    }
};

// A number 0..255 that rises and falls once while `phase` goes around 2^32.
int triangle(std::uint32_t phase) {
    return static_cast<int>((phase & 0x80000000u ? ~phase : phase) >> 23);
}

// Stripes across the image in any direction, as phases of triangle().
struct Wave {
    std::uint32_t start, across, down;  // at the corner, and from a pixel to the next

    // Repeats between `least` and `most` times across the image.
    static Wave draw(Random& random, float least, float most, std::int64_t size) {
        const auto slope = [&] {
            const float turns = random.uniform(least, most) * (random.below(2) != 0 ? 1.0f : -1.0f);
            return static_cast<std::uint32_t>(static_cast<std::int64_t>(turns * 0x1p32f) / size);
        };
        const std::uint32_t across = slope(), down = slope();
        return {static_cast<std::uint32_t>(random.bits()), across, down};
    }
    std::uint32_t phase(std::int64_t x, std::int64_t y) const {
        return start + across * static_cast<std::uint32_t>(x) + down * static_cast<std::uint32_t>(y);
    }
};

Colour draw_colour(Random& random, int least) {
    Colour colour{};
    for (int& channel : colour)
        channel = least + static_cast<int>(random.below(256u - static_cast<unsigned>(least)));
    return colour;
}

// One image and its mask, in the data set's memory.
class Scene {
 public:
    Scene(std::uint8_t* image, std::uint8_t* mask, std::int64_t size)
        : image_(image), mask_(mask), size_(size) {}

    // Two colours that blend into each other, with finer stripes of the same colours, and noise.
    void paint_ground(Random& random) {
        const Colour from = draw_colour(random, 0), to = draw_colour(random, 0);
        const Wave slow = Wave::draw(random, 0.1f, 0.7f, size_), fine = Wave::draw(random, 3, 20, size_);
        const int fine_part = static_cast<int>(random.below(128));  // of 256
        Random noises(random.bits(), 0);  // their own: as many are drawn as there are pixels
        for (std::int64_t y = 0; y < size_; ++y) {
            for (std::int64_t x = 0; x < size_; ++x) {
                const int blend = (triangle(slow.phase(x, y)) * (256 - fine_part) +
                                   triangle(fine.phase(x, y)) * fine_part) /
                                  256;
                std::uint64_t noise = noises.bits();
                for (std::size_t c = 0; c < 3; ++c, noise >>= 16) {
                    const int ground = from[c] + (to[c] - from[c]) * blend / 256;
                    const int speck = static_cast<int>(noise % kNoise) - kNoise / 2;
                    *pixel(c, x, y) = static_cast<std::uint8_t>(std::clamp(ground + speck, 0, 255));
                }
            }
        }
    }

    // Draws a sprite on top.
    void lay(Random& random, const std::uint8_t* sprite, bool shoe) {
        const float scale = random.uniform(kLeastScale, kMostScale) * static_cast<float>(size_) / 256;
        const auto side = static_cast<std::int64_t>(scale * static_cast<float>(kSpriteSide));
        // Of the free space, in parts of 2^16, so that it is the same place in all sizes.
        const std::int64_t left = (size_ - side) * random.below(1u << 16) >> 16;
        const std::int64_t top = (size_ - side) * random.below(1u << 16) >> 16;
        const bool mirrored = random.below(2) != 0;
        const Colour colour = draw_colour(random, 60);
        const auto place = places(side);
        for (std::int64_t y = 0; y < side; ++y) {
            for (std::int64_t x = 0; x < side; ++x) {
                const auto column = static_cast<std::size_t>(mirrored ? side - 1 - x : x);
                const int light = light_at(sprite, place[column], place[static_cast<std::size_t>(y)]);
                if (light < kOpaque) continue;
                for (std::size_t c = 0; c < 3; ++c)
                    *pixel(c, left + x, top + y) =
                        static_cast<std::uint8_t>(colour[c] * (85 + light * 2 / 3) / 255);
                mask_[(top + y) * size_ + left + x] = shoe ? 1 : 0;
            }
        }
    }

 private:
    std::uint8_t* image_;
    std::uint8_t* mask_;
    std::int64_t size_;

    std::uint8_t* pixel(std::size_t channel, std::int64_t x, std::int64_t y) {
        return image_ + (static_cast<std::int64_t>(channel) * size_ + y) * size_ + x;
    }

    // Where an enlarged sprite's pixel lies in the sprite: the pixel before, and 1/256ths on to the next one.
    struct Place {
        std::int64_t pixel;
        int beyond;
    };
    static std::vector<Place> places(std::int64_t side) {
        std::vector<Place> all;
        for (std::int64_t i = 0; i < side; ++i) {
            const auto at = std::clamp<std::int64_t>((2 * i + 1) * kSpriteSide * 128 / side - 128, 0,
                                                     (kSpriteSide - 1) * 256);
            const std::int64_t pixel = std::min(at / 256, kSpriteSide - 2);
            all.push_back({pixel, static_cast<int>(at - pixel * 256)});
        }
        return all;
    }

    // The sprite's light there: bilinear.
    static int light_at(const std::uint8_t* sprite, Place x, Place y) {
        const std::uint8_t* at = sprite + y.pixel * kSpriteSide + x.pixel;
        const int above = at[0] * (256 - x.beyond) + at[1] * x.beyond;
        const int below = at[kSpriteSide] * (256 - x.beyond) + at[kSpriteSide + 1] * x.beyond;
        return (above * (256 - y.beyond) + below * y.beyond) >> 16;
    }
};

void compose(Random random, const Wardrobe& wardrobe, Scene scene) {
    scene.paint_ground(random);
    const int sprites = kLeastSprites + static_cast<int>(random.below(kMostSprites - kLeastSprites + 1));
    for (int i = 0; i < sprites; ++i) {
        // The last sprite, which nothing covers, is a shoe, so no mask is empty.
        const bool shoe = i + 1 == sprites || random.below(100) < kShoes;
        const auto& choice = shoe ? wardrobe.shoes : wardrobe.others;
        const auto image = choice[random.below(static_cast<std::uint32_t>(choice.size()))];
        scene.lay(random, wardrobe.pixels(image), shoe);
    }
}

// Streams of random numbers, one per image; parameters and the training loop use those below.
constexpr std::uint64_t kTrainStreams = std::uint64_t{1} << 34, kTestStreams = std::uint64_t{1} << 35;

Split compose_part(const Wardrobe& wardrobe, std::int64_t size, std::int64_t count, std::uint64_t seed,
                   std::uint64_t first_stream) {
    const std::int64_t pixels = size * size;
    Split samples;
    samples.count = count;
    samples.features = {Type::u8, 3 * pixels,
                        std::vector<std::uint8_t>(static_cast<std::size_t>(count * 3 * pixels))};
    samples.targets = {Type::u8, pixels, std::vector<std::uint8_t>(static_cast<std::size_t>(count * pixels))};
    samples.normalise = kSegmentationNormalise;
    for (std::int64_t i = 0; i < count; ++i)
        compose({seed, first_stream + static_cast<std::uint64_t>(i)}, wardrobe,
                {samples.features.bytes.data() + i * 3 * pixels, samples.targets.bytes.data() + i * pixels,
                 size});
    return samples;
}

}  // namespace

Result<Dataset> compose_segmentation(const std::filesystem::path& directory, std::int64_t size,
                                     std::int64_t count, std::uint64_t seed) {
    if (size != 256 && size != 512 && size != 1024)
        return fail(Fault::usage, "images of {} pixels a side cannot be composed; give 256, 512 or 1024",
                    size);
    const std::int64_t tests = std::max<std::int64_t>(count / 8, 1);
    const auto bytes = static_cast<double>(count + tests) * 4 * static_cast<double>(size * size);
    // Twice: the data set, and the device's copy.
    const auto memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (count < 1 || 2 * bytes > memory)
        return fail(Fault::usage,
                    "{} images of {} pixels a side take {:.1f} GB, and this machine has {:.1f} GB; "
                    "give fewer --samples",
                    count, size, 2e-9 * bytes, 1e-9 * memory);
    const auto sprites = DP_TRY(load_fashion_mnist(directory));
    const Wardrobe train(sprites.train), test(sprites.test);
    for (const Wardrobe* wardrobe : {&train, &test})
        if (wardrobe->shoes.empty() || wardrobe->others.empty())
            return fail(Fault::usage, "{}: needs images of shoes (labels 5, 7, 9) and of other clothes",
                        directory.string());
    return Dataset{compose_part(train, size, count, seed, kTrainStreams),
                   compose_part(test, size, tests, seed, kTestStreams),
                   fmt::format("sprites of {}, composed at {} x {}", directory.string(), size, size)};
}

}  // namespace dp::trainer
