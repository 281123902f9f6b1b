// SPDX-License-Identifier: Apache-2.0
//
// Directories of pictures that --data-dir names: how they are laid out, converted once, refused and read.
#include "trainer/prepare/image_set.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <set>

#include "pictures.hpp"
#include "scratch.hpp"
#include "trainer/data/image_arrays.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/training/sample_order.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

// An array as numpy.save() writes it.
template <typename Number>
std::string npy_of(const char* type, const std::vector<std::int64_t>& shape,
                   const std::vector<Number>& numbers) {
    return npy_header(type, shape) +
           std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

class ImageSetTest : public ::testing::Test {
 protected:
    Result<std::optional<ImageSet>> find(const std::string& name,
                                         DataSet set = DataSet::fashion_mnist) const {
        return find_image_set(scratch_ / name, set);
    }
    Result<ConvertedImages> convert(const std::string& name, DataRequest request) const {
        const auto found = DP_TRY(find_image_set(scratch_ / name, request.set));
        if (!found) return fail(Fault::usage, "no images");
        return convert_images(*found, request, scratch_ / "cache");
    }
    static DataRequest classes() { return {.set = DataSet::fashion_mnist}; }
    static DataRequest masks() { return {.set = DataSet::segmentation}; }
    static Dataset data_in(const ConvertedImages& made, DataRequest request) {
        request.directory = made.directory;
        auto data = load(request);
        EXPECT_TRUE(data) << data.error().message;
        return data ? std::move(*data) : Dataset{};
    }
    static std::int32_t label(const Split& samples, std::int64_t i) {
        std::int32_t label = -1;
        std::memcpy(&label, samples.targets.bytes.data() + static_cast<std::size_t>(i) * sizeof label,
                    sizeof label);
        return label;
    }
    void write_flat(const std::string& name, int value) const {
        scratch_.write(name, png_of({28, 28, 1, Bytes(784, static_cast<std::uint8_t>(value))}));
    }
    Scratch scratch_;
};

TEST_F(ImageSetTest, ClassesAreNumberedByTheirNames) {
    for (int i = 0; i < 4; ++i) {
        write_flat("pets/train/cat/" + std::to_string(i) + ".png", 10 + i);
        write_flat("pets/train/dog/more/" + std::to_string(i) + ".PNG", 200 + i);
        write_flat("pets/train/Zebu/" + std::to_string(i) + ".png",
                   100 + i);  // capitals come first, as Python sorts
    }
    write_flat("pets/val/dog/a.png", 250);
    write_flat("pets/test/dog/b.png", 251);
    scratch_.write("pets/train/cat/notes.txt", "no image");
    write_flat("pets/train/.thumbnails/a.png", 1);
    write_flat("pets/train/cat/.a.png", 1);
    const auto set = find("pets");
    ASSERT_TRUE(set && *set);
    EXPECT_THAT((*set)->classes, ElementsAre("Zebu", "cat", "dog"));
    EXPECT_EQ((*set)->train.size(), 12u);
    EXPECT_EQ((*set)->test_name, "val");
    EXPECT_TRUE(has_image_folder(scratch_ / "pets"));
    const auto made = convert("pets", classes());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("pets: 12 images to train and 1 to test with, as grey of 28 x 28 "
                                      "pixels, 3 classes: Zebu, cat, dog; kept in "));
    const Dataset data = data_in(*made, classes());
    ASSERT_EQ(data.train.count, 12);
    for (std::int64_t i = 0; i < 12; ++i) {
        const int value = data.train.features.bytes[static_cast<std::size_t>(784 * i)];
        EXPECT_EQ(label(data.train, i), value < 100 ? 1 : value < 200 ? 0 : 2) << value;
    }
    EXPECT_EQ(label(data.test, 0), 2);
    EXPECT_EQ(data.test.features.bytes, Bytes(784, 250));
    EXPECT_EQ(data.train.normalise, data.test.normalise);
    EXPECT_NE(data.train.normalise, kSegmentationNormalise);
}

TEST_F(ImageSetTest, WithoutADirectoryToTestWithAPartIsTaken) {
    for (int i = 0; i < 20; ++i) {
        write_flat("pets/cat/" + std::to_string(i) + ".png", i);
        write_flat("pets/dog/" + std::to_string(i) + ".png", 100 + i);
    }
    auto made = convert("pets", classes());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("38 images to train and 2 to test with"));
    DataRequest parts = classes();
    parts.split = TrainTestRest{5, 4, 1};
    made = convert("pets", parts);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("20 images to train and 16 to test with"));
    parts.split.reset();
    const Dataset data = data_in(*made, parts);
    std::set<int> values;
    for (const Split* part : {&data.train, &data.test})
        for (std::int64_t i = 0; i < part->count; ++i)
            EXPECT_TRUE(values.insert(part->features.bytes[static_cast<std::size_t>(784 * i)]).second)
                << "twice";
    parts.split = TrainTestRest{1, 1, 0};
    parts.directory = made->directory;
    EXPECT_THAT(refusal_of(load(parts)), HasSubstr("this set has a test of its own; leave it out"));
    write_flat("pets/val/cat/1.png", 1);
    EXPECT_THAT(refusal_of(convert("pets", parts)),
                HasSubstr("pets: val is there to test with; leave out --data-split"));
    // A class may be called so, too.
    write_flat("tests/test/1.png", 1);
    write_flat("tests/train/1.png", 2);
    EXPECT_THAT(find("tests").value().value().classes, ElementsAre("test", "train"));
}

TEST_F(ImageSetTest, WhatIsNoSetOfClassesIsRefusedOrIsNone) {
    EXPECT_FALSE(find("none").value());
    write_flat("flat/a.png", 1);
    EXPECT_FALSE(find("flat").value());
    EXPECT_FALSE(has_image_folder(scratch_ / "flat"));
    for (int i = 0; i < 11; ++i) write_flat("many/" + std::to_string(i) + "/a.png", 1);
    EXPECT_THAT(refusal_of(find("many")),
                EndsWith("many: has 11 classes, and cnn and ffn take at most 10; give fewer directories"));
    write_flat("pets/cat/a.png", 1);
    fs::create_directories(scratch_ / "pets/dog");
    EXPECT_THAT(refusal_of(find("pets")), HasSubstr("pets/dog: a class without images; "));
    write_flat("pets/dog/a.png", 1);
    // unet2d's, and no classes of that name.
    write_flat("pairs/images/a.png", 1);
    write_flat("pairs/masks/a.png", 1);
    EXPECT_FALSE(find("pairs").value());
    EXPECT_FALSE(has_image_folder(scratch_ / "pairs"));
    // Links that lead back.
    for (const char* link : {"again", "once more"})
        fs::create_directory_symlink(scratch_ / "pets/dog", scratch_ / "pets/dog" / link);
    EXPECT_EQ(find("pets").value()->train.size(), 2u);
    write_flat("pets/val/cow/a.png", 1);
    EXPECT_THAT(refusal_of(find("pets")),
                HasSubstr("val/cow: a class that is not trained on (those are cat, dog)"));
}

TEST_F(ImageSetTest, BadImagesAreRefusedCountedAndNamed) {
    for (int i = 0; i < 30; ++i) write_flat("pets/cat/" + std::to_string(i) + ".png", i);
    const auto cut = png_of(painted(28, 28, 3)).substr(0, 60);
    const auto one = scratch_.write("pets/dog/cut.png", cut),
               other = scratch_.write("pets/dog/x.webp", "RIFF");
    scratch_.write("pets/dog/fine.jpg", jpeg_of(painted(50, 40, 3)));
    const auto refused = convert("pets", classes());
    EXPECT_THAT(refusal_of(refused),
                HasSubstr("; correct it, or give --bad-samples=skip to leave out 2 of 33 images"));
    EXPECT_THAT(refusal_of(refused),
                ::testing::AnyOf(HasSubstr(one.string() + ": it is damaged (libpng: "),
                                 HasSubstr(other.string() + ": it is neither PNG nor JPEG")));
    DataRequest skip = classes();
    skip.bad_samples = BadSamples::skip;
    const auto made = convert("pets", skip);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("; 2 skipped, the first: "));
    const auto list = contents_of(made->directory / "skipped.list");
    EXPECT_THAT(list, HasSubstr(one.string() + "\n"));
    EXPECT_THAT(list, HasSubstr(other.string() + "\n"));
    const Dataset data = data_in(*made, skip);
    EXPECT_EQ(data.train.count + data.test.count, 31);
}

TEST_F(ImageSetTest, IsConvertedOnceUntilItsFilesChange) {
    for (int i = 0; i < 4; ++i) write_flat("pets/cat/" + std::to_string(i) + ".png", i);
    const auto once = convert("pets", classes());
    ASSERT_TRUE(once) << once.error().message;
    const auto written = fs::last_write_time(once->directory / "prepared.json");
    EXPECT_EQ(convert("pets", classes())->note, once->note);
    EXPECT_EQ(fs::last_write_time(once->directory / "prepared.json"), written);
    const auto file = scratch_ / "pets/cat/1.png";
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    EXPECT_NE(convert("pets", classes())->directory, once->directory);
    // What it became is taken by itself, too, by the models whose it is.
    DataRequest itself = classes();
    itself.directory = once->directory;
    EXPECT_TRUE(load(itself));
    itself.set = DataSet::segmentation;
    EXPECT_THAT(refusal_of(load(itself)), HasSubstr("its images have classes; give --model=cnn or ffn"));
}

// ---- masks

TEST_F(ImageSetTest, ArraysOfImagesAndMasksAreBroughtToTheModelsSize) {
    Bytes images, masks_of;
    for (int i = 0; i < 4; ++i)
        for (int pixel = 0; pixel < 16 * 8; ++pixel) {
            for (int c = 0; c < 3; ++c) images.push_back(static_cast<std::uint8_t>(50 * i + c));
            masks_of.push_back(pixel % 8 < 4 ? 255 : 0);
        }
    scratch_.write("set/images.npy", npy_of("|u1", {4, 16, 8, 3}, images));
    scratch_.write("set/masks.npy", npy_of("|u1", {4, 16, 8}, masks_of));
    const auto made = convert("set", masks());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note,
                HasSubstr("3 images to train and 1 to test with, as colours of 256 x 256 pixels; kept in"));
    const Dataset data = data_in(*made, masks());
    ASSERT_EQ(data.train.count, 3);
    EXPECT_EQ(data.train.features.columns, 3 * 65536);
    const std::uint8_t* image = data.train.features.bytes.data();
    EXPECT_EQ(std::tuple(image[1], image[65536], image[3 * 65536 - 1]),
              std::tuple(image[0], image[0] + 1, image[0] + 2));
    EXPECT_EQ(std::tuple(data.train.targets.bytes[127], data.train.targets.bytes[128]), std::tuple(1, 0));
    // Fractions, without channels, and masks of truth values: the same.
    std::vector<float> fractions;
    for (std::size_t i = 0; i < images.size(); i += 3)
        fractions.push_back(static_cast<float>(images[i]) / 255);
    Bytes truths = masks_of;
    for (auto& truth : truths) truth = truth != 0;
    scratch_.write("grey/images.npy", npy_of("<f4", {4, 16, 8}, fractions));
    scratch_.write("grey/masks.npy", npy_of("|b1", {4, 16, 8}, truths));
    const auto same = convert("grey", masks());
    ASSERT_TRUE(same) << same.error().message;
    const Dataset grey_data = data_in(*same, masks());
    EXPECT_EQ(grey_data.train.targets.bytes, data.train.targets.bytes);
    EXPECT_EQ(grey_data.train.features.bytes[0], image[0]);
    EXPECT_EQ(grey_data.train.features.bytes[65536], image[0]);
    DataRequest larger = masks();
    larger.directory = made->directory;
    larger.image_size = 512;
    EXPECT_THAT(refusal_of(load(larger)), HasSubstr("256 x 256 pixels, and the model takes 512 x 512"));
}

TEST_F(ImageSetTest, FilesOfImagesAndMasksBelongTogetherByTheirNames) {
    const Bytes half = {0, 1, 0, 1};
    for (int i = 0; i < 3; ++i) {
        const std::string name = std::to_string(i);
        scratch_.write("set/train/images/" + name + ".jpg", jpeg_of(painted(2, 2, 3)));
        scratch_.write("set/train/masks/" + name + ".png", png_of({2, 2, 1, half}));
    }
    scratch_.write("set/val/images/a.npy", npy_of("|u1", {2, 2}, Bytes{1, 2, 3, 4}));
    scratch_.write("set/val/masks/a.npy", npy_of<std::int64_t>("<i8", {2, 2}, {0, 1, 0, 1}));
    const auto made = convert("set", masks());
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("3 images to train and 1 to test with"));
    const Dataset data = data_in(*made, masks());
    EXPECT_EQ(data.test.targets.bytes[0], 0);
    EXPECT_EQ(data.test.targets.bytes[255], 1);
}

TEST_F(ImageSetTest, MasksThatAreNoneAreNamedWithTheReason) {
    const Bytes half = {0, 1, 0, 1};
    for (const char* name : {"a", "b"}) {
        scratch_.write("set/images/" + std::string(name) + ".png", png_of(painted(2, 2, 3)));
        scratch_.write("set/masks/" + std::string(name) + ".png", png_of({2, 2, 1, half}));
    }
    const auto image = scratch_.write("set/images/c.png", png_of(painted(2, 2, 3)));
    struct Case {
        std::string file, contents, why;
    };
    for (const auto& [file, contents, why] :
         {Case{"", "", "there is no mask of that name"},
          Case{"c.png", png_of({2, 2, 1, {0, 1, 2, 0}}),
               "its mask has 1 and 2 beside 0, and unet2d finds one class"},
          Case{"c.png", png_of({2, 2, 1, {0, 9, 9, 0}}), " unet2d finds one class"},
          Case{"c.png", png_of({3, 2, 1, Bytes(6)}), "its mask has 3 x 2 pixels, and it has 2 x 2"},
          Case{"c.png", png_of(painted(2, 2, 3)), "its mask is coloured"},
          Case{"c.png", jpeg_of({2, 2, 1, half}), "its mask is JPEG, which does not keep its values"},
          Case{"c.npy", npy_of<float>("<f4", {2, 2}, {0, 0.5f, 1, 0}),
               "its mask has 0.5, and masks have whole numbers"},
          Case{"c.npy", npy_of<std::int64_t>("<i8", {2, 2}, {0, -1, 1, 0}), "its mask has -1, and masks"},
          Case{"c.npy", npy_of<std::int64_t>("<i8", {2}, {0, 1}), "its shape is not (H, W) or (H, W, C)"},
          Case{"c.npy", npy_of<std::int64_t>("<i8", {2, 2}, {0, 1}),
               "its shape has 32 bytes, but 16 follow the header"},
          Case{"c.npy", npy_of<double>("<c8", {2, 2}, {0, 1, 0, 1}),
               "its numbers are '<c8', and such are not taken"}}) {
        for (const char* one : {"c.png", "c.npy"}) fs::remove(scratch_ / "set/masks" / one);
        if (!file.empty()) scratch_.write("set/masks/" + file, contents);
        EXPECT_THAT(refusal_of(convert("set", masks())), HasSubstr(why));
        EXPECT_THAT(refusal_of(convert("set", masks())), HasSubstr(" of 3 images"));
    }
    EXPECT_TRUE(fs::exists(image));
    // A row of an array is named by its number.
    std::vector<float> rows(3 * 4, 0.5f);
    rows[5] = std::nanf("");
    scratch_.write("rows/images.npy", npy_of("<f4", {3, 2, 2}, rows));
    scratch_.write("rows/masks.npy", npy_of("|u1", {3, 2, 2}, Bytes(12)));
    EXPECT_THAT(
        refusal_of(convert("rows", masks())),
        HasSubstr("rows/images.npy[1]: it has nan, and floating-point images have 0 to 1; correct it"));
    scratch_.write("rows/masks.npy", npy_of("|u1", {2, 2, 2}, Bytes(8)));
    EXPECT_THAT(refusal_of(convert("rows", masks())),
                HasSubstr("masks.npy: 2 masks for the 3 images of images.npy"));
}

// ---- more than is held in memory

TEST_F(ImageSetTest, ManyImagesAreReadWhenTheyAreNeededAndGiveTheSameBatches) {
    const ImageFacts facts{DataSet::fashion_mnist, 1, 28, {"a", "b", "c"}, normalised_by(0.5f, 0.25f)};
    const std::int64_t many = kMostHeld / 784 + 100;
    for (const std::string part : {"train", "val"}) {
        auto writer = ImageArrayWriter::create(scratch_.path(), part, facts);
        ASSERT_TRUE(writer) << writer.error().message;
        Bytes image(784), target(4);
        for (std::int64_t i = 0; i < (part == "train" ? many : 5); ++i) {
            for (std::size_t pixel = 0; pixel < 784; ++pixel)
                image[pixel] =
                    static_cast<std::uint8_t>(static_cast<std::uint64_t>(i) * 2654435761u >> (pixel % 24));
            target[0] = static_cast<std::uint8_t>(i % 3);
            ASSERT_TRUE(writer->add(image, target));
        }
        ASSERT_TRUE(writer->finish());
    }
    ASSERT_TRUE(write_image_facts(scratch_.path(), facts));
    const auto data = load_image_arrays(scratch_.path(), DataSet::fashion_mnist, 28);
    ASSERT_TRUE(data) << data.error().message;
    ASSERT_TRUE(data->train.streamed);
    EXPECT_FALSE(data->test.streamed);
    EXPECT_TRUE(data->train.features.bytes.empty());
    EXPECT_EQ(data->train.count, many);
    EXPECT_EQ(fingerprint_of(data->train),
              fingerprint_of(load_image_arrays(scratch_.path(), DataSet::fashion_mnist, 28)->train));

    Split held = data->train;
    held.streamed.reset();
    held.features.bytes.resize(static_cast<std::size_t>(many * 784));
    held.targets.bytes.resize(static_cast<std::size_t>(many * 4));
    for (std::int64_t i = 0; i < many; ++i)
        ASSERT_TRUE(data->train.streamed->images->read(
            i, std::span(held.features.bytes).subspan(static_cast<std::size_t>(i * 784), 784),
            std::span(held.targets.bytes).subspan(static_cast<std::size_t>(i * 4), 4)));
    EXPECT_EQ(label(held, 7), 1);
    const auto device = open_cpu(1);
    for (const Type type : {Type::f32, Type::bf16}) {
        DeviceSamples from_files(*device, data->train, 5, 1000, 4, type),
            from_memory(*device, held, 5, 1000, 4, type);
        from_files.expect({{}, {7, 0, 999}});
        const auto one = from_files.gather({{}, {7, 0, 999}});
        ASSERT_TRUE(one) << one.error().message;
        const auto other = from_memory.gather({uploaded(*device, {7, 0, 999}), {}});
        ASSERT_TRUE(other);
        const Tensor x = device->make(Type::f32, {3, 784}), y = device->make(Type::f32, {3, 784});
        device->convert(one->x, x);
        device->convert(other->x, y);
        EXPECT_EQ(device->values_of<float>(x), device->values_of<float>(y));
        EXPECT_EQ(device->values_of<std::int32_t>(one->target),
                  (std::vector<std::int32_t>{12 % 3, 5 % 3, 1004 % 3}));
    }
    // Once more, with another image: other data.
    const Fd file(::open((scratch_ / "train_images.npy").c_str(), O_RDWR));
    const std::string white(784, '\xff');
    ASSERT_EQ(::pwrite(file.get(), white.data(), white.size(), kNpyHeader), 784);
    EXPECT_NE(fingerprint_of(data->train),
              fingerprint_of(load_image_arrays(scratch_.path(), DataSet::fashion_mnist, 28)->train));
}

// A header of some bytes that says more than any machine has.
TEST_F(ImageSetTest, ArraysWithoutPixelsAreRefused) {
    scratch_.write("empty/images.npy", npy_header("|u1", {std::int64_t{1} << 60, 0, 1}));
    scratch_.write("empty/masks.npy", npy_header("|u1", {std::int64_t{1} << 60, 0, 1}));
    EXPECT_THAT(refusal_of(find("empty", DataSet::segmentation)),
                HasSubstr("images.npy: its images have no pixels, or there are too many"));
}

TEST_F(ImageSetTest, TwoMasksOfOneImageAreRefused) {
    write_flat("set/images/a.png", 1);
    write_flat("set/masks/a.png", 1);
    scratch_.write("set/masks/a.json", "{}");  // no mask
    EXPECT_TRUE(find("set", DataSet::segmentation).value());
    scratch_.write("set/masks/a.npy", npy_of("|u1", {1, 1}, Bytes{1}));
    EXPECT_THAT(refusal_of(find("set", DataSet::segmentation)), HasSubstr("both are masks of one image"));
}

TEST_F(ImageSetTest, ArraysThatDoNotFitAreRefused) {
    write_flat("pets/cat/1.png", 1);
    write_flat("pets/dog/1.png", 2);
    const auto made = convert("pets", classes());
    ASSERT_TRUE(made) << made.error().message;
    const auto refusal = [&] {
        return refusal_of(load_image_arrays(made->directory, DataSet::fashion_mnist, 28));
    };
    const fs::path labels = made->directory / "train_labels.npy";
    std::ofstream(labels, std::ios::binary) << npy_of<std::int32_t>("<i4", {1}, {2});
    EXPECT_THAT(refusal(), HasSubstr("train_labels.npy: its label 2 is none of 2 classes"));
    std::ofstream(labels, std::ios::binary) << npy_of<std::int32_t>("<i4", {2}, {0, 1});
    EXPECT_THAT(refusal(), HasSubstr("train_labels.npy: 2 targets for 1 images"));
    std::ofstream(labels, std::ios::binary) << npy_of<std::int64_t>("<i8", {1}, {0});
    EXPECT_THAT(refusal(), HasSubstr("its numbers are '<i8', and such are not taken"));
    std::ofstream(made->directory / "images.json") << "{}";
    EXPECT_THAT(refusal(), HasSubstr("images.json: it is not what this trainer writes"));
}

}  // namespace
}  // namespace dp::trainer
