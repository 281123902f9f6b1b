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
    for (std::size_t me = 0; me < 3; ++me) ranks[me]->announce(*ranks[me]->find(begins[me] + 64, 128));
    const auto part = *ranks[1]->find(begins[1] + 64, 128);
    EXPECT_TRUE(ranks[1]->all_announced(part));
    ranks[2]->announce(*ranks[2]->find(begins[2] + 64, 64));
    EXPECT_FALSE(ranks[1]->all_announced(part)) << "fewer bytes";
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

TEST(MakeToSum, IsCountedAndRefusedAsOtherMemoryIs) {
    const auto device = open_cpu(1);
    EXPECT_TRUE(device->make_to_sum(Type::f32, {10})) << "from the device itself, where nobody knows better";
    const auto memory = three()[0];
    std::size_t asked = 0;
    device->set_memory_to_sum([&](std::size_t bytes) {
        asked += bytes;
        return memory->allocate(bytes);
    });
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
    other->set_memory_to_sum([](std::size_t) { return nullptr; });
    EXPECT_FALSE(other->make_to_sum(Type::f32, {10}));
    EXPECT_EQ(other->memory().held(), 0);
    EXPECT_FALSE(other->status());
}

}  // namespace
}  // namespace dp::trainer
