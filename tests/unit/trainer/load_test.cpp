// SPDX-License-Identifier: Apache-2.0
//
// Which data set a request brings, and that damaged data gets no further.
#include "trainer/data/load.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>

#include "idx_files.hpp"
#include "scratch.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/data/packaged.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Load, BringsTheSetThatIsAskedFor) {
    const Scratch scratch;
    write_sprites(scratch, {0, 5, 1, 7}, std::string(4, '\xff'));
    ASSERT_TRUE(write_shard(scratch / "train.bin", std::vector<Token>(50)));
    ASSERT_TRUE(write_shard(scratch / "val.bin", std::vector<Token>(11)));
    const auto count = [&](DataRequest request) {
        request.directory = scratch.path();
        const auto data = load(request);
        EXPECT_TRUE(data) << data.error().message;
        return data ? std::pair(data->train.count, data->train.features.columns) : std::pair<long, long>();
    };
    EXPECT_EQ(count({DataSet::linear_regression, {}}), std::pair(1000L, 1L));
    EXPECT_EQ(count({DataSet::fashion_mnist, {}}), std::pair(4L, 784L));
    EXPECT_EQ(count({.set = DataSet::tokens, .directory = {}, .sequence = 10, .vocabulary = 1}),
              std::pair(4L, 10L));
    EXPECT_EQ(count({.set = DataSet::segmentation, .directory = {}, .samples = 6}),
              std::pair(6L, 3 * 65536L));
    EXPECT_EQ(count({.set = DataSet::segmentation, .directory = {}}), std::pair(512L, 3 * 65536L));
    // Of files --samples takes the first.
    EXPECT_EQ(count({.set = DataSet::fashion_mnist, .directory = {}, .samples = 3}), std::pair(3L, 784L));
    EXPECT_EQ(count({.set = DataSet::fashion_mnist, .directory = {}, .samples = 5}), std::pair(4L, 784L));
}

// Whoever opened one to read would wait for a writer.
TEST(Load, APipeInAFilesPlaceIsRefused) {
    const Scratch scratch;
    for (const char* name : {"train.bin", "val.bin", "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
        ASSERT_EQ(mkfifo((scratch / name).c_str(), 0600), 0);
    for (const DataSet set : {DataSet::fashion_mnist, DataSet::segmentation, DataSet::tokens}) {
        const auto data = load({.set = set, .directory = scratch.path(), .samples = 1});
        ASSERT_FALSE(data);
        EXPECT_EQ(data.error().fault, Fault::usage);
        EXPECT_THAT(data.error().message, HasSubstr(": it is a pipe, not a file")) << data.error().message;
    }
    EXPECT_FALSE(sha256_of_file(scratch / "train.bin"));
    EXPECT_THAT(open_regular("/dev/null").error().message, HasSubstr("it is not a regular file"));
    EXPECT_THAT(open_regular("/").error().message, HasSubstr("directory"));
}

TEST(Load, PreparedDataThatIsNotAsItWasIsRefused) {
    const Scratch scratch;
    ASSERT_TRUE(write_shard(scratch / "train.bin", std::vector<Token>(50)));
    ASSERT_TRUE(write_shard(scratch / "val.bin", std::vector<Token>(11)));
    ASSERT_TRUE(write_prepared(scratch.path(), "", ""));
    const DataRequest request{
        .set = DataSet::tokens, .directory = scratch.path(), .sequence = 10, .vocabulary = 300};
    EXPECT_TRUE(load(request));
    ASSERT_TRUE(write_shard(scratch / "train.bin", std::vector<Token>(50, 7)));
    const auto data = load(request);
    ASSERT_FALSE(data);
    EXPECT_THAT(data.error().message, HasSubstr("train.bin: changed since `trainer prepare` wrote it"));
}

// ---- Debian's package

// The packaged files as they would be if somebody had put them in again with one other pixel: gzip finds
// nothing wrong.
void change_a_pixel(const std::filesystem::path& file) {
    const auto idx = read_idx(file, 3);
    ASSERT_TRUE(idx) << idx.error().message;
    std::string pixels(idx->elements.begin(), idx->elements.end());
    pixels[pixels.size() / 2] ^= 1;
    const std::string bytes = idx_bytes(idx->dimensions, pixels);
    std::filesystem::remove(file);
    const gzFile out = gzopen(file.c_str(), "wb1");
    EXPECT_EQ(gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(out), Z_OK);
    EXPECT_TRUE(read_idx(file, 3)) << "gzip or idx would have noticed";
}

TEST(Load, APixelThatSomebodyChangedInThePackagedFilesIsRefused) {
    if (!has_fashion_mnist(kFashionMnistDirectory)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
    const Scratch scratch;
    std::filesystem::copy(kFashionMnistDirectory, scratch.path());
    DataRequest request{.set = DataSet::fashion_mnist, .directory = scratch.path()};
    request.packaged.path = scratch.path();
    EXPECT_TRUE(load(request));

    change_a_pixel(scratch / "t10k-images-idx3-ubyte.gz");
    const auto data = load(request);
    ASSERT_FALSE(data);
    EXPECT_EQ(data.error().fault, Fault::usage);
    EXPECT_THAT(data.error().message,
                HasSubstr((scratch / "t10k-images-idx3-ubyte.gz").string() +
                          ": not the published file; fetch it again with `apt-get install --reinstall "
                          "dataset-fashion-mnist` (its SHA-256 is "));
    EXPECT_EQ(data.error().message.find('\n'), std::string::npos);

    request.set = DataSet::segmentation;
    EXPECT_FALSE(load(request)) << "it is composed of the same files";
    request.is_checked = true;
    EXPECT_TRUE(load(request)) << "another rank of the node looks";
    request.is_checked = false;
    request.packaged.path = kFashionMnistDirectory;
    EXPECT_TRUE(load(request)) << "a user's own: taken as it is";
}

TEST(CheckPackaged, LooksOnlyAtFilesOfTheKnownDirectory) {
    const Scratch scratch;
    const std::string right = sha256("right");
    const std::array<DataFile, 2> files{{{"a", right}, {"b", right}}};
    const KnownDirectory known{scratch / "known", files};
    scratch.write("known/a", "right");
    scratch.write("known/b", "wrong");
    scratch.write("known/c", "unknown");
    scratch.write("other/b", "wrong");
    std::filesystem::create_directory_symlink(scratch / "known", scratch / "link");
    const auto check = [&](const char* file) {
        const std::vector<std::filesystem::path> read{scratch / "known/a", scratch / file};
        return check_packaged(read, known);
    };
    EXPECT_THAT(refusal_of(check("known/c")), HasSubstr("known/c: not a file of the package, but it "));
    EXPECT_TRUE(check("known/d")) << "which is not there, so that nobody reads it";
    EXPECT_TRUE(check("other/b"));
    EXPECT_TRUE(check("nowhere/b"));
    EXPECT_THAT(refusal_of(check("known/b")), HasSubstr("known/b: not the published file; "));
    EXPECT_THAT(refusal_of(check("link/b")), HasSubstr("link/b: not the published file; "));
    std::filesystem::remove(scratch / "known/b");
    EXPECT_THAT(refusal_of(check("known/b")), HasSubstr("known/b: missing; fetch it with `apt-get install "));
}

}  // namespace
}  // namespace dp::trainer
