// SPDX-License-Identifier: Apache-2.0
//
// The communicator over Gloo, between threads of this process: right sums, maxima and gathered parts, and the
// same bits on every rank, for worlds of every size up to 9 and tensors smaller than the world.
#include "trainer/parallel/gloo.hpp"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "devices.hpp"
#include "full_mesh.hpp"
#include "scattered_bf16.hpp"
#include "trainer/base/partition.hpp"

#if defined(__SANITIZE_THREAD__)
// Debian's Gloo and oneDNN are not instrumented, so the thread sanitizer cannot see how they synchronise: oneDNN,
// how threads share the descriptions of primitives that it keeps, and how its own threads wait for each other.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:libgloo.so\nrace:libdnnl.so\nrace:dnnl::memory::desc::desc\n";
}
#endif

namespace dp::trainer {
namespace {

// Runs `rank_main(communicator)` as each of `size` ranks.
template <typename Main>
void run_world(int size, Main rank_main) {
    ::gloo::rendezvous::HashStore store;
    // Nobody leaves before all have connected.
    std::barrier connected(size);
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&store, &rank_main, &connected, rank, size] {
            auto mesh = std::make_shared<::gloo::rendezvous::Context>(rank, size);
            connect_full_mesh(*mesh, store);
            connected.arrive_and_wait();
            rank_main(*make_gloo(mesh));
        });
    }
    for (auto& thread : threads) thread.join();
}

TEST(GlooCommunicator, SumsFloatsTheSameOnEveryRankInWorldsOfAnySize) {
    for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        for (std::int64_t count : {1, 2, 7, 1000, 50021}) {
            std::vector<double> expected(static_cast<std::size_t>(count));
            for (int rank = 0; rank < size; ++rank) {
                const auto part = random_values(count, static_cast<std::uint64_t>(rank));
                for (std::size_t i = 0; i < part.size(); ++i) expected[i] += part[i];
            }
            std::mutex mutex;
            std::vector<std::vector<float>> results;
            run_world(size, [&](Communicator& ranks) {
                const auto device = open_cpu(1);
                const auto mine = random_values(count, static_cast<std::uint64_t>(ranks.rank()));
                const Tensor tensor = upload(*device, {count}, mine);
                const auto done = ranks.all_reduce(tensor, Reduction::sum);
                const std::lock_guard lock(mutex);
                ASSERT_TRUE(done) << done.error().message;
                results.push_back(device->values_of<float>(tensor));
            });
            ASSERT_EQ(results.size(), static_cast<std::size_t>(size));
            expect_close(results[0], expected, 1e-6,
                         std::to_string(size) + " ranks, " + std::to_string(count));
            for (const auto& result : results) {
                EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
            }
        }
    }
}

// Added in f32: to round at each rank would be off by more.
TEST(GlooCommunicator, RoundsASumOfBf16Once) {
    constexpr std::int64_t kCount = 5000;
    for (int size : {1, 2, 3, 8}) {
        const auto of_rank = [](std::int64_t rank) {
            std::vector<Bfloat16> numbers;
            for (const float number : random_values(kCount, static_cast<std::uint64_t>(rank), 1, 2))
                numbers.push_back(to_bfloat16(number));
            return numbers;
        };
        run_world(size, [&](Communicator& ranks) {
            const auto device = open_cpu(1);
            const Tensor tensor = device->copy_of<Bfloat16>(Type::bf16, {kCount}, of_rank(ranks.rank()));
            const auto done = ranks.all_reduce(tensor, Reduction::sum);
            ASSERT_TRUE(done) << done.error().message;
            std::vector<float> sums(kCount);
            for (std::int64_t rank = 0; rank < size; ++rank) {
                const auto part = of_rank(rank);
                for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += to_float(part[i]);  // exact
            }
            const auto found = device->values_of<Bfloat16>(tensor);
            for (std::size_t i = 0; i < sums.size(); ++i)
                ASSERT_EQ(found[i].bits, to_bfloat16(sums[i]).bits) << size << " ranks, " << i;
        });
    }
}

TEST(GlooCommunicator, HasSumsOfDoublesAndMaximaOfIntegers) {
    run_world(3, [&](Communicator& ranks) {
        const auto device = open_cpu(1);
        const std::vector<double> doubles{0x1p400, 0.5 * static_cast<double>(ranks.rank())};
        const Tensor sums = device->copy_of<double>(Type::f64, {2}, doubles);
        ASSERT_TRUE(ranks.all_reduce(sums, Reduction::sum));
        EXPECT_EQ(device->values_of<double>(sums), (std::vector<double>{0x1.8p401, 1.5}));
        const std::vector<std::int64_t> integers{-ranks.rank(), ranks.rank() << 40};
        const Tensor maxima = device->copy_of<std::int64_t>(Type::i64, {2}, integers);
        ASSERT_TRUE(ranks.all_reduce(maxima, Reduction::max));
        EXPECT_EQ(device->values_of<std::int64_t>(maxima),
                  (std::vector<std::int64_t>{0, std::int64_t{2} << 40}));
        const Tensor bytes = device->make(Type::u8, {4});
        EXPECT_FALSE(ranks.all_reduce(bytes, Reduction::sum)) << "no such all-reduce";
    });
}

// As batch norm does during the backward pass; each rank is as far as it happens to be.
TEST(GlooCommunicator, AddsUpSmallTensorsWhileALargeSumGoesOn) {
    constexpr std::int64_t kLarge = 1 << 20;
    constexpr int kSize = 3, kSmall = 50;
    run_world(kSize, [&](Communicator& ranks) {
        const auto device = open_cpu(1);
        const std::vector<Tensor> large{device->make(Type::f32, {kLarge}), device->make(Type::f32, {kLarge})};
        for (const Tensor& tensor : large) {
            std::fill_n(tensor.data<float>(), kLarge, static_cast<float>(ranks.rank()));
            ASSERT_TRUE(ranks.start_all_reduce(tensor));
        }
        for (int i = 0; i < kSmall; ++i) {
            const std::vector<double> mine{1.0 * i, static_cast<double>(ranks.rank())};
            const Tensor small = device->copy_of<double>(Type::f64, {2}, mine);
            const auto done = ranks.all_reduce(small, Reduction::sum);
            ASSERT_TRUE(done) << done.error().message;
            EXPECT_EQ(device->values_of<double>(small), (std::vector<double>{3.0 * i, 3}));
        }
        ASSERT_TRUE(ranks.wait_all_reduces());
        for (const Tensor& tensor : large)
            EXPECT_EQ(std::count(tensor.data<float>(), tensor.data<float>() + kLarge, 3.0f), kLarge);
    });
}

TEST(GlooCommunicator, GathersUnevenPartsInPlaceInWorldsOfAnySize) {
    for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        run_world(size, [&](Communicator& ranks) {
            const auto device = open_cpu(1);
            // One after the other, as a training does, also less than a number a rank.
            for (std::int64_t count : {1, 2, 7, 1000, 50021}) {
                const auto all = random_values(count, 3);
                const Shard mine = shard_of(count, ranks.rank(), size);
                std::vector<float> known(all.size(), -5.0f);
                std::copy_n(all.begin() + mine.first, mine.count, known.begin() + mine.first);
                const Tensor tensor = upload(*device, {count}, known);
                const auto done = ranks.all_gather(tensor);
                ASSERT_TRUE(done) << done.error().message;
                EXPECT_EQ(device->values_of<float>(tensor), all) << size << " ranks, " << count;
            }
            const std::vector<std::int64_t> mine(static_cast<std::size_t>(size), ranks.rank());
            const Tensor numbers = device->copy_of<std::int64_t>(Type::i64, {size}, mine);
            ASSERT_TRUE(ranks.all_gather(numbers));
            const auto all = device->values_of<std::int64_t>(numbers);
            for (std::int64_t rank = 0; rank < size; ++rank)
                EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank);
        });
    }
}

// One after the other without a wait between them, as the layers of a model do.
TEST(GlooCommunicator, ScattersSumsInWorldsOfAnySizeInTheOrderOfTheRanks) {
    for (int size : {1, 2, 3, 4, 5, 8}) {
        run_world(size, [&](Communicator& ranks) {
            const auto device = open_cpu(1);
            for (std::int64_t count : {1, 2, 7, 1000, 50021, 400003}) {
                std::vector<float> sums(static_cast<std::size_t>(count));
                for (int rank = 0; rank < size; ++rank) {
                    const auto part = random_values(count, static_cast<std::uint64_t>(rank));
                    for (std::size_t i = 0; i < part.size(); ++i)
                        sums[i] = rank == 0 ? part[i] : sums[i] + part[i];
                }
                const Tensor tensor =
                    upload(*device, {count}, random_values(count, static_cast<std::uint64_t>(ranks.rank())));
                const auto done = ranks.reduce_scatter(tensor);
                ASSERT_TRUE(done) << done.error().message;
                const Shard mine = shard_of(count, ranks.rank(), size);
                const auto got = device->values_of<float>(tensor);
                EXPECT_TRUE(std::equal(got.begin() + mine.first, got.begin() + mine.first + mine.count,
                                       sums.begin() + mine.first))
                    << size << " ranks, " << count;
            }
        });
    }
}

TEST(GlooCommunicator, ScattersSumsOfBf16) {
    run_world(3, [](Communicator& ranks) { expect_bf16_sums_to_scatter(ranks); });
}

TEST(GlooCommunicator, ARankThatLeavesEndsWhatTheOthersDoWithAnError) {
    std::mutex mutex;
    int told = 0;
    run_world(3, [&](Communicator& ranks) {
        if (ranks.rank() == 1) return;  // its sockets close
        const auto device = open_cpu(1);
        const Tensor tensor = device->make(Type::f32, {100000});
        const auto done = ranks.all_reduce(tensor, Reduction::sum);
        const auto gathered = ranks.all_gather(tensor);
        const std::lock_guard lock(mutex);
        ASSERT_FALSE(done);
        EXPECT_EQ(done.error().fault, Fault::world);
        EXPECT_NE(done.error().message.find("another rank has died"), std::string::npos);
        ASSERT_FALSE(gathered);
        EXPECT_EQ(gathered.error().fault, Fault::world);
        EXPECT_NE(gathered.error().message.find("all-gather over Gloo failed: "), std::string::npos);
        ++told;
    });
    EXPECT_EQ(told, 2);
}

// Messages keep their order in each lane, of any size, and two ranks may send at the same time.
TEST(GlooMessages, ArriveInTheirOrder) {
    run_world(3, [](Communicator& ranks) {
        const auto device = open_cpu(1);
        const std::int64_t next = (ranks.rank() + 1) % 3, before = (ranks.rank() + 2) % 3;
        for (const std::int64_t count : {1, 1000, 300000}) {
            std::vector<Tensor> sent;
            for (int message = 0; message < 3; ++message) {
                const std::vector<float> numbers(static_cast<std::size_t>(count),
                                                 static_cast<float>(10 * ranks.rank() + message));
                sent.push_back(device->copy_of<float>(Type::f32, {count}, numbers));
                ASSERT_TRUE(ranks.start_send(sent.back(), next, Lane::activations));
            }
            for (int message = 0; message < 3; ++message) {
                const Tensor got = device->make(Type::f32, {count});
                ASSERT_TRUE(ranks.receive(got, before, Lane::activations));
                const auto expected = static_cast<float>(10 * before + message);
                EXPECT_EQ(device->values_of<float>(got),
                          std::vector<float>(static_cast<std::size_t>(count), expected));
            }
            for (const Tensor& one : sent) ASSERT_TRUE(ranks.wait_send(one));
            // What was sent last may be taken first, where it has a lane of its own.
            const auto tensor_of = [&](float number) {
                return device->copy_of<float>(Type::f32, {1}, std::vector{number});
            };
            const Tensor first = tensor_of(1), second = tensor_of(2), got = tensor_of(0);
            ASSERT_TRUE(ranks.start_send(first, next, Lane::activations));
            ASSERT_TRUE(ranks.start_send(second, next, Lane::gradients));
            ASSERT_TRUE(ranks.receive(got, before, Lane::gradients));
            EXPECT_EQ(device->values_of<float>(got), std::vector{2.0f});
            ASSERT_TRUE(ranks.receive(got, before, Lane::activations));
            EXPECT_EQ(device->values_of<float>(got), std::vector{1.0f});
            for (const Tensor& one : {first, second}) ASSERT_TRUE(ranks.wait_send(one));
            EXPECT_TRUE(ranks.wait_send(device->make(Type::f32, {1}))) << "nothing of it was sent";
        }
    });
}

}  // namespace
}  // namespace dp::trainer
