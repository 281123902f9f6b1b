// SPDX-License-Identifier: Apache-2.0
//
// Which data set a request brings, and that damaged data gets no further.
#include "trainer/data/load.hpp"

#include <gmock/gmock.h>

#include "idx_files.hpp"
#include "scratch.hpp"
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
    EXPECT_EQ(count({DataSet::line, {}}), std::pair(1000L, 1L));
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
    EXPECT_THAT(data.error().message, HasSubstr("train.bin: not as `trainer prepare` wrote it"));
}

}  // namespace
}  // namespace dp::trainer
