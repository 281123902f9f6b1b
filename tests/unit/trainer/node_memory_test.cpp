// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "devices.hpp"

namespace dp::trainer {
namespace {

constexpr std::size_t kPage = 4096;

std::int64_t bytes_held(int file) {
    struct stat found {};
    EXPECT_EQ(fstat(file, &found), 0);
    return found.st_blocks * 512;
}

// Three ranks of one node, in this process.
std::vector<std::shared_ptr<NodeMemory>> three() {
    std::vector<std::shared_ptr<NodeMemory>> ranks;
    for (int i = 0; i < 3; ++i) ranks.push_back(*NodeMemory::make());
    std::vector<int> files;
    for (const auto& rank : ranks) files.push_back(rank->file());
    for (std::size_t me = 0; me < 3; ++me) {
        std::vector<Fd> others;
        for (std::size_t i = 0; i < 3; ++i)
            others.emplace_back(i == me ? -1 : fcntl(files[i], F_DUPFD_CLOEXEC, 0));
        EXPECT_TRUE(ranks[me]->add_others(std::move(others), me));
    }
    return ranks;
}

TEST(NodeMemoryTest, EachSeesWhatTheOthersHaveAtTheSamePlace) {
    const auto ranks = three();
    std::vector<std::shared_ptr<void>> first, second;
    for (const auto& rank : ranks) {
        first.push_back(rank->allocate(5 * kPage + 100));
        second.push_back(rank->allocate(100));
        const auto* numbers = static_cast<const float*>(second.back().get());
        EXPECT_TRUE(std::all_of(numbers, numbers + 25, [](float x) { return x == 0; }));
    }
    for (std::size_t me = 0; me < 3; ++me) {
        static_cast<float*>(first[me].get())[2000] = static_cast<float>(me + 1);
        static_cast<float*>(second[me].get())[3] = static_cast<float>(me + 10);
    }
    for (std::size_t me = 0; me < 3; ++me) {
        const auto* begin = static_cast<const std::byte*>(first[me].get());
        const auto part = ranks[me]->find(begin + 8000, 8);
        const auto other_part = ranks[me]->find(static_cast<const std::byte*>(second[me].get()) + 12, 4);
        ASSERT_TRUE(part && other_part);
        const auto of_all = ranks[me]->of_all(*part), others = ranks[me]->of_all(*other_part);
        ASSERT_TRUE(of_all && others);
        for (std::size_t rank = 0; rank < 3; ++rank) {
            EXPECT_EQ(*(*of_all)[rank], static_cast<float>(rank + 1));
            EXPECT_EQ(*(*others)[rank], static_cast<float>(rank + 10));
        }
        (*of_all)[0][1] += 100;
    }
    EXPECT_EQ(static_cast<float*>(first[0].get())[2001], 300);
}

TEST(NodeMemoryTest, KnowsItsOwnFromOtherMemory) {
    const auto ranks = three();
    const auto mine = ranks[0]->allocate(2 * kPage);
    const auto* begin = static_cast<const std::byte*>(mine.get());
    EXPECT_TRUE(ranks[0]->find(begin, 2 * kPage));
    EXPECT_FALSE(ranks[0]->find(begin + 1, 2 * kPage)) << "beyond the end";
    EXPECT_FALSE(ranks[0]->find(begin - 1, 2)) << "before the beginning";
    EXPECT_FALSE(ranks[1]->find(begin, 4)) << "of another rank";
}

TEST(NodeMemoryTest, WhatWasAnnouncedIsCompared) {
    const auto ranks = three();
    std::vector<std::shared_ptr<void>> kept;
    std::vector<const std::byte*> begins;
    for (const auto& rank : ranks) {
        kept.push_back(rank->allocate(kPage));
        begins.push_back(static_cast<const std::byte*>(kept.back().get()));
    }
    const auto part_of = [&](std::size_t me) { return *ranks[me]->find(begins[me] + 64, 128); };
    for (std::size_t me = 0; me < 3; ++me) ranks[me]->announce(part_of(me));
    const auto part = part_of(1);
    EXPECT_TRUE(ranks[1]->all_announced(part));
    ranks[2]->announce(*ranks[2]->find(begins[2] + 64, 64));
    EXPECT_TRUE(ranks[1]->all_announced(part)) << "one is ahead, and has announced what comes next";
    ranks[0]->announce(part_of(0));
    ranks[1]->announce(part);
    EXPECT_FALSE(ranks[1]->all_announced(part)) << "fewer bytes";
    for (std::size_t me : {0U, 1U}) ranks[me]->announce(part_of(me));
    ranks[2]->announce(*ranks[2]->find(begins[2], 128));
    EXPECT_FALSE(ranks[1]->all_announced(part)) << "elsewhere";
}

TEST(NodeMemoryTest, GivesBackWhatIsFreedAndOutlivesItsOwner) {
    auto ranks = three();
    const int file = fcntl(ranks[0]->file(), F_DUPFD_CLOEXEC, 0);
    const Fd kept(file);
    const std::int64_t before = bytes_held(file);
    auto memory = ranks[0]->allocate(100 * kPage);
    EXPECT_EQ(bytes_held(file), before + static_cast<std::int64_t>(100 * kPage));
    memory.reset();
    EXPECT_EQ(bytes_held(file), before);
    memory = ranks[0]->allocate(kPage);
    ranks.clear();
    static_cast<char*>(memory.get())[0] = 1;
}

TEST(NodeMemoryTest, WhatIsOfTheNodeIsThereOnceForAll) {
    auto ranks = three();
    const std::int64_t before = bytes_held(ranks[0]->file());
    std::vector<std::shared_ptr<void>> shared, own;
    // The first rank comes last: the others need not wait for it.
    for (const std::size_t me : {2U, 1U, 0U}) {
        own.push_back(ranks[me]->allocate(kPage));
        shared.push_back(ranks[me]->allocate_of_node(10 * kPage + 8));
        own.push_back(ranks[me]->allocate(kPage));
        auto* numbers = static_cast<float*>(shared.back().get());
        const auto of_all = static_cast<float>(me);
        EXPECT_EQ(numbers[10 * kPage / 4 + 1], me == 2 ? 0 : of_all + 1)
            << "zeros, to the end; then what the rank before has written";
        numbers[10 * kPage / 4 + 1] = of_all;
        static_cast<float*>(own.back().get())[0] = of_all + 10;
    }
    EXPECT_EQ(bytes_held(ranks[0]->file()) - before, static_cast<std::int64_t>((11 + 2) * kPage)) << "once";
    // What is allocated behind it is still at the same place on all.
    const auto part = ranks[0]->find(static_cast<const std::byte*>(own.back().get()), 4);
    ASSERT_TRUE(part);
    const auto of_all = ranks[0]->of_all(*part);
    ASSERT_TRUE(of_all);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(*(*of_all)[rank], static_cast<float>(rank + 10));
    EXPECT_EQ(*ranks[0]->of_first(*part), 10);
    // Who leaves first takes nothing away.
    shared.pop_back();
    own.clear();
    ranks.clear();
    EXPECT_EQ(static_cast<float*>(shared.back().get())[10 * kPage / 4 + 1], 0);
    static_cast<float*>(shared.front().get())[0] = 7;
    EXPECT_EQ(static_cast<float*>(shared.back().get())[0], 7);
}

TEST(MakeOfNode, CountsARanksShare) {
    const auto device = open_cpu(1);
    {
        const Tensor alone = device->make_of_node(Type::f32, {10});
        EXPECT_EQ(device->memory().held(), 40) << "from the device itself, where nobody knows better";
    }
    const auto memory = three()[0];
    device->set_shared_memory({[&](std::size_t bytes) { return memory->allocate(bytes); },
                               [&](std::size_t bytes) { return memory->allocate_of_node(bytes); }, 3});
    device->memory().set_limit(400);
    {
        const Tensor tensor = device->make_of_node(Type::f32, {250});
        EXPECT_TRUE(tensor);
        EXPECT_EQ(device->memory().held(), 334) << "a third of 1000, rounded up";
    }
    EXPECT_EQ(device->memory().held(), 0);
    EXPECT_FALSE(device->make_of_node(Type::f32, {301})) << "beyond the limit";
    EXPECT_FALSE(device->status());
}

TEST(MakeToSum, IsCountedAndRefusedAsOtherMemoryIs) {
    const auto device = open_cpu(1);
    EXPECT_TRUE(device->make_to_sum(Type::f32, {10})) << "from the device itself, where nobody knows better";
    const auto memory = three()[0];
    std::size_t asked = 0;
    const SharedMemory::Allocate none = [](std::size_t) { return nullptr; };
    device->set_shared_memory({[&](std::size_t bytes) {
                                   asked += bytes;
                                   return memory->allocate(bytes);
                               },
                               none, 3});
    device->memory().set_limit(5000);
    {
        const Tensor tensor = device->make_to_sum(Type::f32, {1000});
        EXPECT_TRUE(memory->find(tensor.data<std::byte>(), tensor.bytes()));
        EXPECT_EQ(device->memory().held(), 4000);
        EXPECT_EQ(asked, 4000u);
    }
    EXPECT_EQ(device->memory().held(), 0);
    EXPECT_FALSE(device->make_to_sum(Type::f32, {2000})) << "beyond the limit";
    EXPECT_TRUE(device->memory().is_exhausted());
    EXPECT_FALSE(device->status());
    EXPECT_EQ(asked, 4000u);

    const auto other = open_cpu(1);
    other->set_shared_memory({none, none, 3});
    EXPECT_FALSE(other->make_to_sum(Type::f32, {10}));
    EXPECT_EQ(other->memory().held(), 0);
    EXPECT_FALSE(other->status());
}

}  // namespace
}  // namespace dp::trainer
