// SPDX-License-Identifier: Apache-2.0
//
// The sum over the ranks that have the same slice on each node: right, the same bits on all of them, for two
// nodes and for more; and an error at once where one is gone.
#include "trainer/parallel/inter_node.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <vector>

#include "node_world.hpp"

namespace dp::trainer {
namespace {

TEST(InterNode, SumsTheSameOnEveryNodeWhicheverWayTheSliceGoesFirst) {
    const std::vector<std::int64_t> counts{1, 7, 1000, 300007, 3, 1};
    for (const std::size_t nodes : {2u, 3u, 5u}) {
        for (const std::int64_t index : {0, 1}) {
            std::mutex mutex;
            std::vector<std::vector<float>> results;
            as_threads(nodes, [&](auto& store, int rank) {
                const auto device = open_cpu(1);
                const auto all_reduce = inter_node_all_reduce(connect(store, "nodes", rank, nodes), index);
                ASSERT_TRUE(all_reduce) << all_reduce.error().message;
                std::vector<float> mine;
                for (const std::int64_t count : counts) {
                    const Tensor all = device->make(Type::f32, {count + 2});
                    const Tensor slice = all.view(1, {count});
                    device->upload(random_values(count, static_cast<std::uint64_t>(rank)).data(), slice);
                    const auto done = (*all_reduce)(slice);
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

// The one that sends first is left with a full socket or without an answer, the other without numbers.
TEST(InterNode, EndsWithAnErrorAtOnceWhereTheOtherIsGone) {
    for (const std::int64_t index : {0, 1}) {
        for (const std::int64_t count : {std::int64_t{100}, std::int64_t{8} << 20}) {
            as_threads(2, [&](auto& store, int rank) {
                const auto device = open_cpu(1);
                const Tensor slice = device->make(Type::f32, {count});
                const auto all_reduce = inter_node_all_reduce(connect(store, "nodes", rank, 2), index);
                ASSERT_TRUE(all_reduce);
                ASSERT_TRUE((*all_reduce)(slice.view(0, {1})));
                if (rank == 1) return;  // and its connection ends
                const auto began = std::chrono::steady_clock::now();
                const auto done = (*all_reduce)(slice);
                ASSERT_FALSE(done);
                EXPECT_NE(done.error().message.find("another rank has died"), std::string::npos)
                    << done.error().message;
                EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
                EXPECT_FALSE((*all_reduce)(slice)) << "nor does it go on";
            });
        }
    }
}

}  // namespace
}  // namespace dp::trainer
