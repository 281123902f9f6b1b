// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a node that reduce in shared memory: right sums with the same bits on every rank, for nodes of all
// sizes, as threads and as processes; and what happens when one of them dies, is stopped or does not want.
#include "trainer/parallel/node_communicator.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "node_world.hpp"
#include "scattered_bf16.hpp"
#include "scratch.hpp"
#include "trainer/base/bfloat16.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Numbers of this rank, round by round, that add up to the same bits in any order: multiples of 2^-10.
float number(int rank, std::int64_t round, std::int64_t i) {
    return static_cast<float>((rank + 1) * 37 + (round * 101 + i * 7) % 1013) / 1024.0f;
}

void fill(const Tensor& tensor, int rank, std::int64_t round) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.data<float>()[i] = number(rank, round, i);
}

// The sum of a tensor, where it then is.
Result<Tensor> sum(Communicator& ranks, const Tensor& tensor) {
    if (auto done = ranks.start_all_reduce(tensor); !done) return tl::make_unexpected(done.error());
    if (auto done = ranks.wait_all_reduces(); !done) return tl::make_unexpected(done.error());
    return ranks.result_of(tensor);
}

std::int64_t wrong_sums(const Tensor& tensor, int ranks, std::int64_t round) {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += number(rank, round, i);
        if (tensor.data<float>()[i] != sum) ++wrong;
    }
    return wrong;
}

TEST(NodeCommunicatorTest, RoundsASumOfBf16Once) {
    constexpr std::int64_t kCount = 50021;
    for (const std::vector<int>& nodes :
         std::vector<std::vector<int>>{{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 1}})
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared) << shared.error().message;
            std::vector<Bfloat16> mine;
            std::vector<float> sums(kCount);
            for (int other = 0; other < static_cast<int>(nodes.size()); ++other)
                for (std::int64_t i = 0; i < kCount; ++i) {
                    const Bfloat16 narrow = to_bfloat16(1 + number(other, 0, i));
                    sums[static_cast<std::size_t>(i)] += to_float(narrow);  // exact
                    if (other == rank) mine.push_back(narrow);
                }
            const Tensor tensor = device->copy_of<Bfloat16>(Type::bf16, {kCount}, mine);
            const auto done = shared->communicator->all_reduce(tensor, Reduction::sum);
            ASSERT_TRUE(done) << done.error().message;
            const auto found = device->values_of<Bfloat16>(tensor);
            for (std::size_t i = 0; i < sums.size(); ++i)
                ASSERT_EQ(found[i].bits, to_bfloat16(sums[i]).bits) << nodes.size() << " ranks, " << i;
        });
}

TEST(NodeCommunicatorTest, SumsTheSameOnEveryRankOfNodesOfAnySize) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0},
                                                                       {0, 0, 0},
                                                                       {0, 0, 0, 0, 0, 0, 0, 0},
                                                                       {0, 0, 1, 1},
                                                                       {0, 1, 0, 1},
                                                                       {0, 0, 0, 0, 1, 1, 1, 1},
                                                                       {0, 0, 0, 1},
                                                                       {1, 1, 0, 0, 0},
                                                                       {0, 0, 1, 1, 2, 2, 2}}) {
        const std::vector<std::int64_t> counts{1, 2, 7, 1000, 50021, 200003};
        std::mutex mutex;
        std::vector<std::vector<float>> results;
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared) << shared.error().message;
            EXPECT_EQ(shared->communicator->name(), "node-memory") << shared->why_not;
            EXPECT_EQ(shared->communicator->rank(), rank);
            EXPECT_EQ(shared->communicator->size(), static_cast<std::int64_t>(nodes.size()));
            std::vector<float> mine;
            for (const std::int64_t count : counts) {
                const Tensor all = device->make_to_sum(Type::f32, {count + 60});
                const Tensor tensor = all.view(33, {count});
                device->upload(random_values(count, static_cast<std::uint64_t>(rank)).data(), tensor);
                const auto found = sum(*shared->communicator, tensor);
                ASSERT_TRUE(found) << found.error().message;
                const auto values = device->values_of<float>(*found);
                mine.insert(mine.end(), values.begin(), values.end());
                EXPECT_EQ(all.data<float>()[32], 0) << "nothing before it";
                EXPECT_EQ(all.data<float>()[33 + count], 0) << "nor after it";
                ASSERT_TRUE(shared->communicator->node_barrier()) << "before the first frees it";
            }
            const std::lock_guard lock(mutex);
            results.push_back(std::move(mine));
        });
        std::vector<double> expected;
        for (const std::int64_t count : counts) {
            std::vector<double> sums(static_cast<std::size_t>(count));
            for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
                const auto part = random_values(count, rank);
                for (std::size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
            }
            expected.insert(expected.end(), sums.begin(), sums.end());
        }
        const std::string what = ::testing::PrintToString(nodes);
        ASSERT_EQ(results.size(), nodes.size()) << what;
        expect_close(results[0], expected, 1e-6, what);
        for (const auto& result : results)
            EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0)
                << what;
    }
}

TEST(NodeCommunicatorTest, GathersAndScattersOnOneNodeAndBetweenNodes) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
             {0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 1}, {0, 0, 0, 1}})
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared) << shared.error().message;
            Communicator& ranks = *shared->communicator;
            const auto size = static_cast<std::int64_t>(nodes.size());
            // A part of a piece, a piece, and some of them.
            for (const std::int64_t count : {1, 7, 1000, 50021, 200003}) {
                const Shard mine = shard_of(count, rank, size);
                const Tensor tensor = device->make(Type::f32, {count});
                fill(tensor, rank, count);
                const auto scattered = ranks.reduce_scatter(tensor);
                ASSERT_TRUE(scattered) << scattered.error().message;
                std::vector<float> sums;
                for (std::int64_t i = 0; i < count; ++i) {
                    sums.push_back(0);
                    for (int other = 0; other < size; ++other) sums.back() += number(other, count, i);
                }
                auto got = device->values_of<float>(tensor);
                EXPECT_TRUE(std::equal(got.begin() + mine.first, got.begin() + mine.first + mine.count,
                                       sums.begin() + mine.first))
                    << ::testing::PrintToString(nodes) << ", " << count;
                for (std::int64_t i = 0; i < count; ++i)
                    if (i < mine.first || i >= mine.first + mine.count) tensor.data<float>()[i] = -5;
                const auto gathered = ranks.all_gather(tensor);
                ASSERT_TRUE(gathered) << gathered.error().message;
                EXPECT_EQ(device->values_of<float>(tensor), sums)
                    << ::testing::PrintToString(nodes) << ", " << count;
            }
            const std::vector<std::int64_t> numbers(static_cast<std::size_t>(size), rank);
            const Tensor integers = device->copy_of<std::int64_t>(Type::i64, {size}, numbers);
            ASSERT_TRUE(ranks.all_gather(integers));
            for (std::int64_t other = 0; other < size; ++other)
                EXPECT_EQ(integers.data<std::int64_t>()[other], other);
        });
}

TEST(NodeCommunicatorTest, ScattersSumsOfBf16) {
    as_threads(3, [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        const auto shared = join_nodes(store, {0, 0, 0}, rank, *device);
        ASSERT_TRUE(shared) << shared.error().message;
        expect_bf16_sums_to_scatter(*shared->communicator);
    });
}

TEST(NodeCommunicatorTest, SumsWhileTheCallerGoesOnAndLeavesTheRestToTheWorld) {
    const std::vector<int> nodes{0, 0, 1, 1};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        auto shared = join_nodes(store, nodes, rank, *device);
        ASSERT_TRUE(shared);
        Communicator& ranks = *shared->communicator;
        const Tensor gradients = device->make_to_sum(Type::f32, {300000});
        const Tensor elsewhere = device->make(Type::f32, {1000});
        for (std::int64_t round = 0; round < 8; ++round) {
            const std::vector parts{gradients.view(100000, {200000}), elsewhere, gradients.view(17, {99983})};
            for (const Tensor& part : parts) fill(part, rank, round);
            // One after the other, or together.
            if (round % 2 == 0) {
                for (const Tensor& part : parts) ASSERT_TRUE(ranks.start_all_reduce(part));
            } else {
                ASSERT_TRUE(ranks.start_all_reduces(parts));
            }
            const auto done = ranks.wait_all_reduces();
            ASSERT_TRUE(done) << done.error().message;
            for (const Tensor& part : parts) EXPECT_EQ(wrong_sums(ranks.result_of(part), 4, round), 0);
            EXPECT_EQ(ranks.result_of(elsewhere).data<float>(), elsewhere.data<float>());
            ASSERT_TRUE(ranks.node_barrier()) << "before any of them writes to it";

            const Tensor doubles = device->copy_of<double>(Type::f64, {1}, std::vector<double>{0.5 * rank});
            ASSERT_TRUE(ranks.all_reduce(doubles, Reduction::sum));
            EXPECT_EQ(device->values_of<double>(doubles)[0], 3);
            gradients.data<float>()[0] = static_cast<float>(rank);
            ASSERT_TRUE(ranks.all_reduce(gradients.view(0, {1}), Reduction::max));
            EXPECT_EQ(gradients.data<float>()[0], 3);
        }
    });
}

TEST(NodeCommunicatorTest, GivesAllWhatOneRankHasWhereverThatIs) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
             {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 0, 1, 2, 2}, {0, 0, 0, 1}, {1, 1, 0, 0, 0}}) {
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared);
            Communicator& ranks = *shared->communicator;
            for (std::int64_t root = 0; root < static_cast<std::int64_t>(nodes.size()); ++root) {
                for (const std::int64_t count : {1, 1000, 300007}) {
                    const auto theirs = random_values(count, static_cast<std::uint64_t>(root));
                    for (const Tensor& tensor :
                         {device->make_to_sum(Type::f32, {count}), device->make(Type::f32, {count})}) {
                        device->upload(random_values(count, static_cast<std::uint64_t>(rank)).data(), tensor);
                        const auto done = ranks.broadcast(tensor, root);
                        ASSERT_TRUE(done) << done.error().message;
                        EXPECT_EQ(device->values_of<float>(ranks.result_of(tensor)), theirs)
                            << ::testing::PrintToString(nodes) << " from " << root << " to " << rank;
                        ASSERT_TRUE(ranks.node_barrier()) << "before the first frees it";
                    }
                }
            }
        });
    }
}

// Where nodes are even by a way of its own, elsewhere through the world.
TEST(NodeCommunicatorTest, AddsUpFewNumbersAgainAndAgainWhileALargeSumGoesOn) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
             {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}, {0, 1, 2, 0, 2, 1}, {0, 0, 0, 1}}) {
        const auto ranks = static_cast<std::int64_t>(nodes.size());
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared);
            const Tensor large = device->make_to_sum(Type::f32, {1 << 20});
            fill(large, rank, 0);
            ASSERT_TRUE(shared->communicator->start_all_reduce(large));
            for (const std::int64_t count : {1, 2, 64, 2048, 2049, 40000, 7}) {
                for (std::int64_t round = 0; round < 6; ++round) {
                    std::vector<double> mine, expected;
                    for (std::int64_t i = 0; i < count; ++i) {
                        mine.push_back(static_cast<double>((rank + 1) * (i + 1) + round) / 3);
                        expected.push_back(
                            static_cast<double>(ranks * (ranks + 1) / 2 * (i + 1) + ranks * round) / 3);
                    }
                    const Tensor few = device->copy_of<double>(Type::f64, {count}, mine);
                    const auto done = shared->communicator->small_all_reduce(few);
                    ASSERT_TRUE(done) << done.error().message;
                    const auto values = device->values_of<double>(few);
                    for (std::size_t i = 0; i < values.size(); ++i)
                        ASSERT_NEAR(values[i], expected[i], 1e-12 * expected[i]) << count << ", " << round;
                    const std::vector bits{std::bit_cast<std::int64_t>(values.back()),
                                           -std::bit_cast<std::int64_t>(values.back())};
                    const Tensor most = device->copy_of<std::int64_t>(Type::i64, {2}, bits);
                    ASSERT_TRUE(shared->communicator->all_reduce(most, Reduction::max));
                    EXPECT_EQ(device->values_of<std::int64_t>(most), bits) << "the same bits on all";
                    const Tensor places = device->make(Type::i64, {4 * count + ranks});
                    std::fill_n(places.data<std::int64_t>(), places.elements(), (rank + 1) * (round + 1));
                    ASSERT_TRUE(shared->communicator->all_reduce(places, Reduction::sum));
                    EXPECT_EQ(device->values_of<std::int64_t>(places),
                              std::vector<std::int64_t>(static_cast<std::size_t>(4 * count + ranks),
                                                        ranks * (ranks + 1) / 2 * (round + 1)));
                }
            }
            ASSERT_TRUE(shared->communicator->wait_all_reduces());
            EXPECT_EQ(wrong_sums(shared->communicator->result_of(large), static_cast<int>(nodes.size()), 0),
                      0);
            ASSERT_TRUE(shared->communicator->node_barrier()) << "before the first frees it";
        });
    }
}

TEST(NodeCommunicatorTest, ARankThatLeavesEndsTheSumsOfFewNumbersWithAnError) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1, 1}}) {
        std::atomic<int> told = 0;
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared);
            const Tensor few = device->make(Type::f64, {10});
            ASSERT_TRUE(shared->communicator->small_all_reduce(few));
            if (rank == 1) return;  // its connections close
            const auto done = shared->communicator->small_all_reduce(few);
            ASSERT_FALSE(done);
            EXPECT_NE(done.error().message.find("another rank has died"), std::string::npos)
                << done.error().message;
            EXPECT_FALSE(shared->communicator->small_all_reduce(few)) << "and it stays so";
            EXPECT_FALSE(shared->communicator->node_barrier());
            ++told;
        });
        EXPECT_EQ(told, static_cast<int>(nodes.size()) - 1) << ::testing::PrintToString(nodes);
    }
}

TEST(NodeCommunicatorTest, EachKnowsItsShareOfItsNode) {
    const std::vector<int> nodes{0, 1, 0, 0, 1};
    const std::vector<std::int64_t> indices{0, 0, 1, 2, 1}, ranks{3, 2, 3, 3, 2};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto at = static_cast<std::size_t>(rank);
        const auto device = open_cpu(1);
        const auto shared = join_nodes(store, nodes, rank, *device);
        ASSERT_TRUE(shared);
        const auto share = shared->communicator->node_share();
        ASSERT_TRUE(share);
        EXPECT_EQ(share->index, indices[at]);
        EXPECT_EQ(share->ranks, ranks[at]);
        EXPECT_EQ(share->fewest, 2);
        // Each of a node writes its part, and all see it.
        const Tensor tensor = device->make_of_node(Type::f32, {100000});
        const Shard part = share->part_of(100000);
        for (std::int64_t i = part.first; i < part.first + part.count; ++i)
            tensor.data<float>()[i] = static_cast<float>(nodes[at] + i);
        ASSERT_TRUE(shared->communicator->node_barrier());
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < 100000; ++i)
            wrong += tensor.data<float>()[i] == static_cast<float>(nodes[at] + i) ? 0 : 1;
        EXPECT_EQ(wrong, 0);
        ASSERT_TRUE(shared->communicator->node_barrier());
    });
}

TEST(NodeCommunicatorTest, RanksThatAreAloneOnTheirNodesStayWithTheWorld) {
    const std::vector<int> nodes{0, 1};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        const auto shared = join_nodes(store, nodes, rank, *device);
        ASSERT_TRUE(shared);
        EXPECT_EQ(shared->communicator->name(), "gloo");
        EXPECT_EQ(shared->why_not, "") << "nothing is amiss";
        EXPECT_FALSE(shared->communicator->node_share());
    });
}

TEST(NodeCommunicatorTest, WhereOneDoesNotShareNobodyDoesAndAllKnowWhy) {
    const std::vector<int> nodes{0, 0, 1, 1};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        NodeSetting setting;
        if (rank == 2) setting.unwanted = "not today";
        auto shared = join_nodes(store, nodes, rank, *device, setting);
        ASSERT_TRUE(shared) << shared.error().message;
        EXPECT_EQ(shared->communicator->name(), "gloo");
        EXPECT_EQ(shared->why_not, "rank 2: not today");
        const Tensor tensor = device->make_to_sum(Type::f32, {10});
        fill(tensor, rank, 0);
        ASSERT_TRUE(shared->communicator->all_reduce(tensor, Reduction::sum));
        EXPECT_EQ(wrong_sums(tensor, 4, 0), 0);
    });
}

TEST(NodeCommunicatorTest, ARankThatLeavesEndsTheSumsOfAllOthersWithAnError) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1, 1}, {0, 0, 1}}) {
        std::atomic<int> told = 0;
        as_threads(nodes.size(), [&](auto& store, int rank) {
            const auto device = open_cpu(1);
            const auto shared = join_nodes(store, nodes, rank, *device);
            ASSERT_TRUE(shared);
            const Tensor tensor = device->make_to_sum(Type::f32, {100000});
            ASSERT_TRUE(sum(*shared->communicator, tensor));
            if (rank == 1) return;  // its connections close
            ASSERT_TRUE(shared->communicator->start_all_reduce(tensor));
            const auto done = shared->communicator->wait_all_reduces();
            ASSERT_FALSE(done);
            EXPECT_EQ(done.error().fault, Fault::world);
            EXPECT_NE(done.error().message.find("another rank has died"), std::string::npos)
                << done.error().message;
            EXPECT_FALSE(sum(*shared->communicator, tensor)) << "and it stays so";
            EXPECT_FALSE(shared->communicator->node_barrier());
            ++told;
        });
        EXPECT_EQ(told, static_cast<int>(nodes.size()) - 1) << ::testing::PrintToString(nodes);
    }
}

void meet_all(::gloo::rendezvous::Store& store, int rank, int ranks) {
    store.set("done-" + std::to_string(rank), {1});
    for (int other = 0; other < ranks; ++other)
        store.wait({"done-" + std::to_string(other)}, std::chrono::minutes(1));
}

TEST(NodeCommunicatorTest, ASumEndsWithTheWorld) {
    const std::vector<int> nodes{0, 0};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        std::function<void()> end;
        NodeSetting setting;
        setting.on_end = [&](std::function<void()> call) {
            end = std::move(call);
            return std::make_shared<int>(0);
        };
        const auto shared = join_nodes(store, nodes, rank, *device, setting);
        ASSERT_TRUE(shared);
        const Tensor tensor = device->make_to_sum(Type::f32, {1000});
        if (rank == 0) {
            ASSERT_TRUE(shared->communicator->start_all_reduce(tensor));  // alone
            std::this_thread::sleep_for(milliseconds(30));
            end();
            EXPECT_FALSE(shared->communicator->wait_all_reduces());
        }
        meet_all(store, rank, 2);  // it was not the end of the other that ended it
    });
}

TEST(NodeCommunicatorTest, DifferentTensorsAreNotAddedUp) {
    const std::vector<int> nodes{0, 0, 0};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        const auto shared = join_nodes(store, nodes, rank, *device);
        ASSERT_TRUE(shared);
        const Tensor tensor = device->make_to_sum(Type::f32, {1000});
        EXPECT_FALSE(sum(*shared->communicator, tensor.view(0, {rank == 2 ? 500 : 1000})));
    });
}

TEST(NodeCommunicatorTest, ARankThatDoesNotComeIsWaitedForOnlySoLong) {
    const std::vector<int> nodes{0, 0};
    as_threads(nodes.size(), [&](auto& store, int rank) {
        const auto device = open_cpu(1);
        NodeSetting setting;
        setting.timeout = milliseconds(200);
        const auto shared = join_nodes(store, nodes, rank, *device, setting);
        ASSERT_TRUE(shared);
        const Tensor tensor = device->make_to_sum(Type::f32, {1000});
        if (rank == 0) {
            const auto done = sum(*shared->communicator, tensor);
            ASSERT_FALSE(done);
            EXPECT_NE(done.error().message.find("waited"), std::string::npos) << done.error().message;
        }
        meet_all(store, rank, 2);
    });
}

// ---- ranks that are processes

// Sums of sizes that all ranks draw alike, each checked. -> an exit code.
int many_sums(::gloo::rendezvous::Store& store, const std::vector<int>& nodes, int rank,
              std::int64_t rounds) {
    const auto device = open_cpu(1);
    const auto shared = join_nodes(store, nodes, rank, *device);
    if (!shared || shared->communicator->name() != "node-memory") return 10;
    const Tensor all = device->make_to_sum(Type::f32, {200000});
    Random random(7, 0);
    for (std::int64_t round = 0; round < rounds; ++round) {
        const bool is_large = random.bits() % 64 == 0;
        const auto count = static_cast<std::int64_t>(random.bits() % (is_large ? 200000 : 300)) + 1;
        const auto first =
            static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(200001 - count));
        const Tensor tensor = all.view(first, {count});
        fill(tensor, rank, round);
        const auto found = sum(*shared->communicator, tensor);
        if (!found) return 11;
        if (wrong_sums(*found, static_cast<int>(nodes.size()), round) != 0) return 12;
        if (!shared->communicator->node_barrier()) return 13;
    }
    return 0;
}

TEST(NodeCommunicatorTest, TenThousandSumsOfProcesses) {
    for (const auto& [nodes, rounds] : std::vector<std::pair<std::vector<int>, std::int64_t>>{
             {{0, 0, 0, 0}, 10000}, {{0, 0, 1, 1}, 1500}}) {
        const Scratch scratch;
        const auto& of_rank = nodes;
        const std::int64_t times = rounds;
        const auto ranks =
            start_processes(of_rank.size(), scratch.path().string(),
                            [&](auto& store, int rank) { return many_sums(store, of_rank, rank, times); });
        for (const pid_t rank : ranks) EXPECT_EQ(code_of(rank), 0);
    }
}

// Sums again and again; tells by the exit code that one ended with an error that names a death.
int until_it_breaks(::gloo::rendezvous::Store& store, const std::vector<int>& nodes, int rank,
                    const std::string& sign) {
    const auto device = open_cpu(1);
    const auto shared = join_nodes(store, nodes, rank, *device);
    if (!shared || shared->communicator->name() != "node-memory") return 10;
    const Tensor tensor = device->make_to_sum(Type::f32, {100000});
    for (int round = 0;; ++round) {
        if (round == 50 && rank == 0) std::ofstream(sign) << "running";
        const auto done = sum(*shared->communicator, tensor);
        if (!done) return done.error().message.find("another rank has died") != std::string::npos ? 42 : 11;
    }
}

void wait_for_file(const std::string& name) {
    for (int i = 0; i < 3000 && !std::filesystem::exists(name); ++i)
        std::this_thread::sleep_for(milliseconds(10));
    ASSERT_TRUE(std::filesystem::exists(name));
}

TEST(NodeCommunicatorTest, AKilledProcessEndsTheSumsOfTheOthersAtOnce) {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1, 1}}) {
        for (const std::size_t victim : {0U, 1U}) {
            const Scratch scratch, signs;
            const std::string sign = (signs / "sign").string();
            const auto ranks = start_processes(
                nodes.size(), scratch.path().string(),
                [&](auto& store, int rank) { return until_it_breaks(store, nodes, rank, sign); });
            wait_for_file(sign);
            // Stopped first, so that all the others wait for it when it dies.
            kill(ranks[victim], SIGSTOP);
            std::this_thread::sleep_for(milliseconds(1500));
            for (std::size_t rank = 0; rank < ranks.size(); ++rank)
                EXPECT_EQ(waitpid(ranks[rank], nullptr, WNOHANG), 0) << "a stopped rank is waited for";
            const auto begin = Clock::now();
            kill(ranks[victim], SIGKILL);
            for (std::size_t rank = 0; rank < ranks.size(); ++rank)
                EXPECT_EQ(code_of(ranks[rank]), rank == victim ? -SIGKILL : 42) << rank;
            EXPECT_LT(Clock::now() - begin, seconds(5));
        }
    }
}

TEST(NodeCommunicatorTest, AStoppedProcessGoesOnWithTheOthers) {
    const std::vector<int> nodes{0, 0, 0};
    const Scratch scratch;
    const auto ranks = start_processes(nodes.size(), scratch.path().string(), [&](auto& store, int rank) {
        return many_sums(store, nodes, rank, 3000);
    });
    for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(milliseconds(40));
        kill(ranks[1], SIGSTOP);
        std::this_thread::sleep_for(milliseconds(60));
        kill(ranks[1], SIGCONT);
    }
    for (const pid_t rank : ranks) EXPECT_EQ(code_of(rank), 0);
}

}  // namespace
}  // namespace dp::trainer
