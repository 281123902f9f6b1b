// SPDX-License-Identifier: Apache-2.0
//
// Reading idx files and the data set made of them: good files gzipped and plain, and every way in which one
// can be bad.
#include "trainer/data/idx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>

#include "trainer/data/dataset.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using ::testing::HasSubstr;

class IdxTest : public ::testing::Test {
 protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "trainer-idx-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        directory_ = name;
    }
    void TearDown() override { fs::remove_all(directory_); }

    fs::path file(const std::string& name) const { return directory_ / name; }

    fs::path plain(const Bytes& bytes, const std::string& name = "file") const {
        std::ofstream out(file(name), std::ios::binary);
        out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        return file(name);
    }

    fs::path zipped(const Bytes& bytes, const std::string& name = "file.gz") const {
        gzFile out = gzopen(file(name).c_str(), "wb");
        EXPECT_EQ(gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())),
                  static_cast<int>(bytes.size()));
        EXPECT_EQ(gzclose(out), Z_OK);
        return file(name);
    }

    Bytes contents(const fs::path& path) const {
        std::ifstream in(path, std::ios::binary);
        return Bytes(std::istreambuf_iterator<char>(in), {});
    }

    std::string refusal(const fs::path& path, std::size_t dimensions = 1) const {
        const auto idx = read_idx(path, dimensions);
        EXPECT_FALSE(idx) << "it was taken";
        if (idx) return {};
        EXPECT_EQ(idx.error().fault, Fault::usage);
        EXPECT_THAT(idx.error().message, HasSubstr(path.string()));
        EXPECT_EQ(idx.error().message.find('\n'), std::string::npos) << "more than one line";
        return idx.error().message;
    }

    fs::path directory_;
};

Bytes idx(const std::vector<std::uint32_t>& dimensions, const Bytes& elements) {
    Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(dimensions.size())};
    for (auto size : dimensions) {
        for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
    }
    bytes.insert(bytes.end(), elements.begin(), elements.end());
    return bytes;
}

Bytes counted(std::size_t count) {
    Bytes bytes;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 31));
    return bytes;
}

TEST_F(IdxTest, ReadsPlainAndGzippedFiles) {
    const Bytes elements = counted(std::size_t{300} * 5);
    for (const auto& path : {plain(idx({300, 5}, elements)), zipped(idx({300, 5}, elements))}) {
        const auto read = read_idx(path, 2);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->dimensions, (std::vector<std::uint32_t>{300, 5}));
        EXPECT_EQ(read->elements, elements);
    }
}

TEST_F(IdxTest, RefusesWhatIsMissingOrNoIdxFile) {
    EXPECT_THAT(refusal(file("missing")), HasSubstr("No such file"));
    EXPECT_THAT(refusal(plain({})), HasSubstr("cut short"));
    EXPECT_THAT(refusal(plain({0, 0, 8})), HasSubstr("cut short"));
    EXPECT_THAT(refusal(plain({'h', 'e', 'l', 'l', 'o', ' ', 'y', 'o', 'u'})), HasSubstr("not an idx file"));
    EXPECT_THAT(refusal(plain({0, 0, 13, 1, 0, 0, 0, 1, 7})),
                HasSubstr("not an idx file of unsigned bytes"));  // floats
    EXPECT_THAT(refusal(plain(idx({2, 2}, counted(4)))), HasSubstr("2 dimensions instead of 1"));
}

// Read in pieces: a job that may have 1 GB must hear what is wrong with the file.
TEST_F(IdxTest, TakesNoMemoryForElementsThatAreNotThere) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer's own memory is counted, too";
#endif
    const auto most = [] {  // KiB that this process has held
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_maxrss;
    };
    const auto before = most();
    EXPECT_THAT(refusal(plain(idx({0x7FFFFFFF}, counted(9)))), HasSubstr("cut short"));
    EXPECT_LT(most() - before, 300 << 10);

    const Bytes elements(70 << 20, 7);
    const auto read = read_idx(zipped(idx({70 << 20}, elements)), 1);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->elements, elements);
}

TEST_F(IdxTest, RefusesWrongSizes) {
    EXPECT_THAT(refusal(plain(idx({10}, counted(9)))), HasSubstr("cut short"));
    EXPECT_THAT(refusal(plain(idx({10}, counted(11)))), HasSubstr("bytes follow the last element"));
    EXPECT_THAT(refusal(plain(idx({0}, {}))), HasSubstr("impossible size"));
    // These must be refused before memory is asked for.
    EXPECT_THAT(refusal(plain(idx({0xFFFFFFFF}, counted(9)))), HasSubstr("impossible size"));
    EXPECT_THAT(refusal(plain(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {})), 3),
                HasSubstr("impossible size"));
    EXPECT_THAT(refusal(plain(idx({0x10000, 0x10000, 0x10000}, {})), 3), HasSubstr("impossible size"));
}

TEST_F(IdxTest, RefusesDamagedGzip) {
    Bytes good = contents(zipped(idx({5000}, counted(5000))));
    for (std::size_t length : {good.size() - 1, good.size() - 9, good.size() / 2, std::size_t{20}}) {
        EXPECT_THAT(
            refusal(plain(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)), "cut.gz")),
            HasSubstr("--data-dir"))
            << length << " bytes";
    }
    Bytes flipped = good;
    flipped[flipped.size() - 6] ^= 1;  // in the checksum
    refusal(plain(flipped, "checksum.gz"));
    flipped = good;
    flipped[flipped.size() / 2] ^= 0x55;
    refusal(plain(flipped, "flipped.gz"));
}

class FashionMnistTest : public IdxTest {
 protected:
    // A small data set in the right form; single files are then replaced.
    void write_all() const {
        zipped(idx({6, 28, 28}, counted(std::size_t{6} * 784)), "train-images-idx3-ubyte.gz");
        zipped(idx({6}, {0, 1, 2, 9, 4, 5}), "train-labels-idx1-ubyte.gz");
        plain(idx({3, 28, 28}, counted(std::size_t{3} * 784)), "t10k-images-idx3-ubyte");
        plain(idx({3}, {9, 8, 7}), "t10k-labels-idx1-ubyte");
    }
    std::string load_refusal() const {
        const auto data = load_fashion_mnist(directory_);
        EXPECT_FALSE(data) << "it was taken";
        return data ? "" : data.error().message;
    }
};

TEST_F(FashionMnistTest, LoadsImagesAndLabels) {
    EXPECT_FALSE(has_fashion_mnist(directory_));
    write_all();
    EXPECT_TRUE(has_fashion_mnist(directory_));
    const auto data = load_fashion_mnist(directory_);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 6);
    EXPECT_EQ(data->test.count, 3);
    EXPECT_EQ(data->train.features.columns, 784);
    EXPECT_EQ(data->train.features.bytes, counted(std::size_t{6} * 784));
    std::vector<std::int32_t> labels(6);
    ASSERT_EQ(data->train.targets.bytes.size(), 6 * sizeof(std::int32_t));
    std::copy_n(data->train.targets.bytes.data(), data->train.targets.bytes.size(),
                reinterpret_cast<std::uint8_t*>(labels.data()));
    EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 1, 2, 9, 4, 5}));
}

// What the model sees of black, white and the training images' mean, wherever the data is from.
TEST_F(FashionMnistTest, NormalisesByTheTrainingImagesOwnMeanAndDeviation) {
    write_all();
    std::string half_white(std::size_t{6} * 784, '\0');
    std::fill_n(half_white.begin(), half_white.size() / 2, '\xff');
    const auto normalise_of = [&](const std::string& pixels) {
        zipped(idx({6, 28, 28}, {pixels.begin(), pixels.end()}), "train-images-idx3-ubyte.gz");
        const auto data = load_fashion_mnist(directory_);
        EXPECT_TRUE(data) << data.error().message;
        EXPECT_EQ(data->test.normalise, data->train.normalise);
        return data->train.normalise;
    };
    EXPECT_EQ(normalise_of(half_white), normalised_by(0.5f, 0.5f));
    // Images of one colour have no deviation to divide by.
    EXPECT_EQ(normalise_of(std::string(std::size_t{6} * 784, '\xff')), normalised_by(1, 1));
    if (!has_fashion_mnist(kFashionMnistDirectory)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
    EXPECT_EQ(load_fashion_mnist(kFashionMnistDirectory)->train.normalise, kFashionMnistNormalise);
}

TEST_F(FashionMnistTest, RefusesFilesThatDoNotFitTogether) {
    write_all();
    zipped(idx({5}, {0, 1, 2, 3, 4}), "train-labels-idx1-ubyte.gz");
    EXPECT_THAT(load_refusal(), HasSubstr("5 labels for 6 images"));
    write_all();
    zipped(idx({6}, {0, 1, 2, 10, 4, 5}), "train-labels-idx1-ubyte.gz");
    EXPECT_THAT(load_refusal(), HasSubstr("a label is not in 0..9"));
    write_all();
    zipped(idx({6, 14, 56}, counted(std::size_t{6} * 784)), "train-images-idx3-ubyte.gz");
    EXPECT_THAT(load_refusal(), HasSubstr("14x56"));
    write_all();
    fs::remove(file("t10k-labels-idx1-ubyte"));
    EXPECT_THAT(load_refusal(), HasSubstr("t10k-labels-idx1-ubyte.gz"));
}

}  // namespace
}  // namespace dp::trainer
