// SPDX-License-Identifier: Apache-2.0
//
// The sum over the ranks that have the same slice on each node: right, the same bits on all of them, for two
// nodes and for more; and an error at once where one is gone.
#include "trainer/parallel/inter_node.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "node_world.hpp"

namespace dp::trainer {
namespace {

Result<InterNode> connected(::gloo::rendezvous::Store& store, int rank, std::size_t nodes,
                            std::int64_t index) {
    const auto mesh = [&](const std::string& name) -> Result<std::shared_ptr<::gloo::Context>> {
        return connect(store, name, rank, nodes);
    };
    return connect_nodes(mesh, static_cast<std::int64_t>(nodes), index);
}

TEST(InterNode, SumsTheSameOnEveryNodeWhicheverWayTheSliceGoesFirst) {
    const std::vector<std::int64_t> counts{1, 7, 1000, 300007, 3, 1};
    for (const std::size_t nodes : {2u, 3u, 5u}) {
        for (const std::int64_t index : {0, 1}) {
            std::mutex mutex;
            std::vector<std::vector<float>> results;
            as_threads(nodes, [&](auto& store, int rank) {
                const auto device = open_cpu(1);
                const auto between = connected(store, rank, nodes, index);
                ASSERT_TRUE(between) << between.error().message;
                std::vector<float> mine;
                for (const std::int64_t count : counts) {
                    const Tensor all = device->make(Type::f32, {count + 2});
                    const Tensor slice = all.view(1, {count});
                    device->upload(random_values(count, static_cast<std::uint64_t>(rank)).data(), slice);
                    const auto done = between->sum(slice);
                    ASSERT_TRUE(done) << done.error().message;
                    EXPECT_EQ(all.data<float>()[0], 0) << "nothing before it";
                    EXPECT_EQ(all.data<float>()[count + 1], 0) << "nor after it";
                    const auto values = device->values_of<float>(slice);
                    mine.insert(mine.end(), values.begin(), values.end());
                }
                const std::lock_guard lock(mutex);
                results.push_back(std::move(mine));
            });
            std::vector<double> expected;
            for (const std::int64_t count : counts) {
                std::vector<double> sums(static_cast<std::size_t>(count));
                for (std::size_t rank = 0; rank < nodes; ++rank) {
                    const auto part = random_values(count, rank);
                    for (std::size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
                }
                expected.insert(expected.end(), sums.begin(), sums.end());
            }
            const std::string what = std::to_string(nodes) + " nodes, index " + std::to_string(index);
            ASSERT_EQ(results.size(), nodes) << what;
            expect_close(results[0], expected, 1e-6, what);
            for (const auto& result : results)
                EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0)
                    << what;
        }
    }
}

TEST(InterNode, ReducesNumbersOfAnyTypeWhileASumGoesOn) {
    for (const std::size_t nodes : {2u, 3u}) {
        as_threads(nodes, [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto between = connected(store, rank, nodes, 0);
            ASSERT_TRUE(between);
            const Tensor slice = device->make(Type::f32, {1 << 20});
            std::thread other([&] {
                for (int i = 0; i < 4; ++i) EXPECT_TRUE(between->sum(slice));
            });
            const auto ranks = static_cast<std::int64_t>(nodes);
            for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2048}, std::int64_t{60000}}) {
                std::vector<std::int64_t> mine(static_cast<std::size_t>(count),
                                               (std::int64_t{1} << 60) + rank);
                const Tensor most = device->copy_of<std::int64_t>(Type::i64, {count}, mine);
                EXPECT_TRUE(between->all_reduce(most, Reduction::max));
                std::ranges::fill(mine, (std::int64_t{1} << 60) + ranks - 1);
                EXPECT_EQ(device->values_of<std::int64_t>(most), mine) << "no bit is lost";
                const Tensor sums = device->copy_of<double>(
                    Type::f64, {count}, std::vector<double>(static_cast<std::size_t>(count), rank + 0.5));
                EXPECT_TRUE(between->all_reduce(sums, Reduction::sum));
                EXPECT_EQ(device->values_of<double>(sums).back(), ranks * (ranks - 1) / 2 + 0.5 * ranks);
            }
            other.join();
        });
    }
}

// The one that sends first is left with a full socket or without an answer, the other without numbers.
TEST(InterNode, EndsWithAnErrorAtOnceWhereTheOtherIsGone) {
    for (const std::int64_t index : {0, 1}) {
        for (const std::int64_t count : {std::int64_t{100}, std::int64_t{8} << 20}) {
            as_threads(2, [&](auto& store, int rank) {
                const auto device = open_cpu(1);
                const Tensor slice = device->make(Type::f32, {count});
                const auto between = connected(store, rank, 2, index);
                ASSERT_TRUE(between);
                ASSERT_TRUE(between->sum(slice.view(0, {1})));
                if (rank == 1) return;  // and its connection ends
                const auto began = std::chrono::steady_clock::now();
                const auto done = between->sum(slice);
                ASSERT_FALSE(done);
                EXPECT_NE(done.error().message.find("another rank has died"), std::string::npos)
                    << done.error().message;
                EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
                EXPECT_FALSE(between->sum(slice)) << "nor does it go on";
            });
        }
    }
}

}  // namespace
}  // namespace dp::trainer
