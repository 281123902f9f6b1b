// SPDX-License-Identifier: Apache-2.0
//
// Messages between ranks of a node, in memory that they share: of any size, in their order, as threads and as processes; and what
// happens when one of them dies, does not come or does not want.
#include "trainer/parallel/node_messages.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "node_world.hpp"
#include "scratch.hpp"
#include "trainer/base/random.hpp"
#include "trainer/parallel/message_communicator.hpp"

namespace dp::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::HasSubstr;

constexpr auto kForward = Lane::activations, kBack = Lane::gradients;

// The ranks of a node, in this process.
struct Node {
    std::vector<std::unique_ptr<NodeMessages>> ranks;

    explicit Node(std::size_t size, milliseconds timeout = minutes(1)) {
        for (std::size_t rank = 0; rank < size; ++rank) {
            auto made = NodeMessages::make(size, timeout);
            EXPECT_TRUE(made) << made.error().message;
            ranks.push_back(std::move(*made));
        }
        std::vector<int> files;
        for (const auto& rank : ranks) files.push_back(rank->file());
        for (std::size_t rank = 0; rank < size; ++rank) {
            std::vector<Fd> others(size);
            for (std::size_t other = 0; other < size; ++other)
                if (other != rank) others[other].reset(fcntl(files[other], F_DUPFD_CLOEXEC, 0));
            const auto added = ranks[rank]->add_others(std::move(others), rank);
            EXPECT_TRUE(added) << added.error().message;
        }
    }
    NodeMessages& operator[](std::size_t rank) { return *ranks[rank]; }
};

Tensor numbers(std::int64_t count, std::int64_t from = 0) {
    const auto memory = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
        (*memory)[static_cast<std::size_t>(i)] = static_cast<float>((from + i * 7) % 100003);
    return {std::shared_ptr<void>(memory, memory->data()), Type::f32, {count}};
}

bool are_equal(const Tensor& a, const Tensor& b) {
    return std::equal(a.data<float>(), a.data<float>() + a.elements(), b.data<float>(),
                      b.data<float>() + b.elements());
}

std::string outcome_of(const Result<void>& done) {
    return done ? "done" : done.error().message;
}

TEST(NodeMessages, ArriveInTheirOrderInEachLaneWhateverTheirSize) {
    const std::vector<std::int64_t> sizes{0, 1, 3, 1024, 70000, 0, 300007, 5, 1025, 1 << 20, 1};
    Node node(2);
    std::atomic<int> wrong = 0;
    const auto talk = [&](std::size_t me) {
        const std::size_t other = 1 - me;
        std::int64_t number = 0;
        for (int round = 0; round < 4; ++round)
            for (const std::int64_t size : sizes) {
                number += 11;
                const auto sign = [&](std::size_t of, Lane lane) {
                    return number + (of == 0 ? 0 : 1000) + (lane == kForward ? 0 : 5000);
                };
                for (const Lane lane : {kForward, kBack}) {
                    const Tensor sent = numbers(size, sign(me, lane));
                    if (!node[me].send(sent, other, lane)) ++wrong;
                    std::fill_n(sent.data<float>(), size, -1.0f);  // it is on its way
                }
                for (const Lane lane : {kBack, kForward}) {
                    const Tensor found = numbers(size);
                    if (!node[me].receive(found, other, lane) ||
                        !are_equal(found, numbers(size, sign(other, lane))))
                        ++wrong;
                }
            }
    };
    std::thread other([&] { talk(1); });
    talk(0);
    other.join();
    EXPECT_EQ(wrong, 0);
}

TEST(NodeMessages, ComeFromWhomTheyAreExpected) {
    Node node(3);
    ASSERT_TRUE(node[0].send(numbers(5, 10), 2, kForward));
    ASSERT_TRUE(node[1].send(numbers(5, 20), 2, kForward));
    ASSERT_TRUE(node[2].send(numbers(5, 30), 1, kForward));
    const Tensor found = numbers(5);
    for (const auto& [from, to, first] : {std::array<std::size_t, 3>{1, 2, 20}, {2, 1, 30}, {0, 2, 10}}) {
        ASSERT_TRUE(node[to].receive(found, from, kForward));
        EXPECT_TRUE(are_equal(found, numbers(5, static_cast<std::int64_t>(first))));
    }
}

TEST(NodeMessages, ASenderIsAtMostTwoAhead) {
    Node node(2, milliseconds(60));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(node[0].send(numbers(9, i), 1, kForward));
    EXPECT_THAT(outcome_of(node[0].send(numbers(9, 2), 1, kForward)), HasSubstr("waited"));
    EXPECT_TRUE(node[0].send(numbers(9), 1, kBack)) << "of the other lane there is none yet";
    const Tensor found = numbers(9);
    ASSERT_TRUE(node[1].receive(found, 0, kForward));
    EXPECT_TRUE(are_equal(found, numbers(9, 0)));
    EXPECT_TRUE(node[0].send(numbers(9, 2), 1, kForward)) << "what it had waited for";
    for (int i = 1; i < 3; ++i) {
        ASSERT_TRUE(node[1].receive(found, 0, kForward));
        EXPECT_TRUE(are_equal(found, numbers(9, i)));
    }
    EXPECT_THAT(outcome_of(node[1].receive(found, 0, kForward)), HasSubstr("waited"));
}

TEST(NodeMessages, OfAnotherSizeAreAnError) {
    Node node(2);
    ASSERT_TRUE(node[0].send(numbers(4), 1, kForward));
    EXPECT_THAT(outcome_of(node[1].receive(numbers(5), 0, kForward)),
                HasSubstr("a message of 16 bytes where the receiver has room for 20"));
}

TEST(NodeMessages, BreakingOffEndsAllWaitsForEverButWhatWasSentArrives) {
    Node node(3);
    ASSERT_TRUE(node[0].send(numbers(100, 7), 1, kForward));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(node[2].send(numbers(3), 0, kBack));
    std::vector<std::string> outcomes(2);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { outcomes[0] = outcome_of(node[1].receive(numbers(3), 2, kBack)); });
    threads.emplace_back([&] { outcomes[1] = outcome_of(node[2].send(numbers(3), 0, kBack)); });
    node[0].break_off();
    for (auto& thread : threads) thread.join();
    for (const auto& outcome : outcomes) EXPECT_THAT(outcome, HasSubstr("another rank has died"));
    const Tensor found = numbers(100);
    EXPECT_TRUE(node[1].receive(found, 0, kForward));
    EXPECT_TRUE(are_equal(found, numbers(100, 7)));
    EXPECT_THAT(outcome_of(node[1].receive(found, 0, kForward)), HasSubstr("another rank has died"));
}

// ---- stages of a pipeline

Result<SharedNodes> join_stages(::gloo::rendezvous::Store& store, const std::vector<int>& nodes, int rank,
                                NodeSetting setting = {}) {
    setting = setting_of(store, nodes, rank, std::move(setting));
    return share_messages(make_gloo(connect(store, "world", rank, nodes.size())), setting);
}

TEST(StageMessages, GoThroughMemoryOnANodeAndThroughTheWorldBetweenNodes) {
    struct Case {
        std::vector<int> nodes;
        std::string unwanted;  // of rank 1
        std::string name;
    };
    for (const auto& [nodes, unwanted, name] : {Case{{0, 0}, "", "node-memory"},
                                                {{0, 0, 1, 1}, "", "node-memory"},
                                                {{0, 1, 0, 0, 2}, "", "node-memory"},
                                                {{0, 1}, "", "gloo"},
                                                {{0, 0, 0}, "not today", "gloo"}}) {
        const std::string why = unwanted.empty() ? "" : "rank 1: " + unwanted, expected = name;
        const auto& of_rank = nodes;
        const auto& unwanted_by_one = unwanted;
        as_threads(nodes.size(), [&](auto& store, int rank) {
            NodeSetting setting;
            if (rank == 1) setting.unwanted = unwanted_by_one;
            const auto shared = join_stages(store, of_rank, rank, setting);
            ASSERT_TRUE(shared) << shared.error().message;
            EXPECT_EQ(shared->why_not, why);
            Communicator& ranks = *shared->communicator;
            EXPECT_EQ(ranks.name(), expected);
            // Round the ring both ways, as the ends of a pipeline do.
            const std::int64_t size = ranks.size(), next = (rank + 1) % size, last = (rank + size - 1) % size;
            const Tensor out = numbers(3000), back = numbers(2000), in = numbers(3000), other = numbers(2000);
            for (int round = 0; round < 20; ++round) {
                ASSERT_TRUE(ranks.wait_send(out));
                std::fill_n(out.data<float>(), 3000, static_cast<float>(100 * rank + round));
                ASSERT_TRUE(ranks.start_send(out, next, kForward));
                ASSERT_TRUE(ranks.wait_send(back));
                std::fill_n(back.data<float>(), 2000, static_cast<float>(-100 * rank - round));
                ASSERT_TRUE(ranks.start_send(back, last, kBack));
                ASSERT_TRUE(ranks.receive(in, last, kForward));
                ASSERT_TRUE(ranks.receive(other, next, kBack));
                EXPECT_EQ(std::count(in.data<float>(), in.data<float>() + 3000,
                                     static_cast<float>(100 * last + round)),
                          3000);
                EXPECT_EQ(std::count(other.data<float>(), other.data<float>() + 2000,
                                     static_cast<float>(-100 * next - round)),
                          2000);
            }
            const Tensor sum = numbers(10, rank);
            ASSERT_TRUE(ranks.all_reduce(sum, Reduction::max)) << "that is the world's";
            EXPECT_TRUE(are_equal(sum, numbers(10, size - 1)));
        });
    }
}

TEST(StageMessages, EndWithTheWorld) {
    as_threads(2, [&](auto& store, int rank) {
        std::function<void()> end;
        NodeSetting setting;
        setting.on_end = [&](std::function<void()> call) {
            end = std::move(call);
            return std::make_shared<int>(0);
        };
        const auto shared = join_stages(store, {0, 0}, rank, setting);
        ASSERT_TRUE(shared);
        if (rank == 0) {
            std::thread ending([&] { end(); });
            EXPECT_THAT(outcome_of(shared->communicator->receive(numbers(4), 1, kForward)),
                        HasSubstr("another rank has died"));
            ending.join();
        }
        // It was not the end of the other that ended it.
        store.set("done-" + std::to_string(rank), {1});
        store.wait({"done-0", "done-1"}, minutes(1));
    });
}

TEST(StageMessages, ARankThatLeavesEndsTheWaitsOfTheOthersButItsLastMessagesArrive) {
    as_threads(3, [&](auto& store, int rank) {
        const auto shared = join_stages(store, {0, 0, 0}, rank);
        ASSERT_TRUE(shared);
        Communicator& ranks = *shared->communicator;
        if (rank == 1) {
            ASSERT_TRUE(ranks.start_send(numbers(50, 3), 0, kForward));
            ASSERT_TRUE(ranks.start_send(numbers(50, 4), 2, kForward));
            return;  // its connections close
        }
        const Tensor found = numbers(50);
        const auto done = ranks.receive(found, 1, kForward);
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_TRUE(are_equal(found, numbers(50, rank == 0 ? 3 : 4)));
        EXPECT_THAT(outcome_of(ranks.receive(found, 1, kForward)), HasSubstr("another rank has died"));
    });
}

// ---- ranks that are processes

// Messages of sizes that both draw alike, there and back, each checked. -> an exit code.
int many_messages(::gloo::rendezvous::Store& store, int rank, int rounds) {
    const auto shared = join_stages(store, {0, 0}, rank);
    if (!shared || shared->communicator->name() != "node-memory") return 10;
    Communicator& ranks = *shared->communicator;
    Random random(7, 0);
    for (int round = 0; round < rounds; ++round) {
        const bool is_large = random.bits() % 64 == 0;
        const auto size = static_cast<std::int64_t>(random.bits() % (is_large ? 200000 : 300));
        const Tensor mine = numbers(size, 10 * round + rank), found = numbers(size);
        if (!ranks.start_send(mine, 1 - rank, rank == 0 ? kForward : kBack)) return 11;
        if (!ranks.receive(found, 1 - rank, rank == 0 ? kBack : kForward)) return 12;
        if (!are_equal(found, numbers(size, 10 * round + 1 - rank))) return 13;
    }
    // Nobody leaves before the other has all.
    return ranks.all_reduce(numbers(1), Reduction::sum) ? 0 : 14;
}

TEST(StageMessages, TenThousandOfProcesses) {
    const Scratch scratch;
    const auto ranks = start_processes(
        2, scratch.path().string(), [&](auto& store, int rank) { return many_messages(store, rank, 10000); });
    for (const pid_t rank : ranks) EXPECT_EQ(code_of(rank), 0);
}

TEST(StageMessages, AKilledProcessEndsTheWaitsOfTheOthers) {
    const Scratch scratch, signs;
    const auto sign_of = [&](int rank) { return (signs / std::to_string(rank)).string(); };
    const auto ranks = start_processes(3, scratch.path().string(), [&](auto& store, int rank) {
        const auto shared = join_stages(store, {0, 0, 0}, rank);
        if (!shared || shared->communicator->name() != "node-memory") return 10;
        Communicator& stages = *shared->communicator;
        std::ofstream(sign_of(rank)) << "running";
        // The middle one never sends; the first one waits for a message, the last one for a place.
        if (rank == 1) return stages.receive(numbers(7), 0, kBack) ? 11 : 12;
        for (int i = 0;; ++i) {
            const auto done = rank == 0 ? stages.receive(numbers(7), 1, kForward)
                                        : stages.start_send(numbers(7, i), 1, kForward);
            if (!done)
                return done.error().message.find("another rank has died") != std::string::npos ? 42 : 13;
        }
    });
    for (int rank = 0; rank < 3; ++rank) {
        for (int i = 0; i < 6000 && !std::filesystem::exists(sign_of(rank)); ++i)
            std::this_thread::sleep_for(milliseconds(10));
        ASSERT_TRUE(std::filesystem::exists(sign_of(rank)));
    }
    kill(ranks[1], SIGKILL);
    EXPECT_EQ(code_of(ranks[0]), 42);
    EXPECT_EQ(code_of(ranks[1]), -SIGKILL);
    EXPECT_EQ(code_of(ranks[2]), 42);
}

}  // namespace
}  // namespace dp::trainer
