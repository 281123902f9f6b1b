// SPDX-License-Identifier: Apache-2.0
//
// Of the lowest rank each new value is told; of the others, that one is no number.
#include "record/new_scalars.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "record/entries.hpp"

namespace dp {
namespace {

class NewScalarsTest : public testing::Test {
 protected:
    NewScalars scalars;
    std::vector<PhasePage> pages{4};

    // 4 to 7.
    std::vector<NewScalars::Rank> ranks() const {
        std::vector<NewScalars::Rank> all;
        for (uint32_t task = 0; task < pages.size(); ++task)
            all.push_back({task, task + 4, task + 100, &pages[task]});
        return all;
    }

    // "task/number=name:value", without a name where it was told before.
    std::vector<std::string> told() {
        record::Sample sample;
        scalars.add_to(sample, ranks());
        std::vector<std::string> all;
        for (const auto& one : sample.scalars())
            all.push_back(std::to_string(one.task()) + "/" + std::to_string(one.number()) + "=" + one.name() +
                          ":" +
                          (std::isnan(one.value()) ? "nan" : std::to_string(static_cast<int>(one.value()))));
        return all;
    }
    using Told = std::vector<std::string>;
};

TEST_F(NewScalarsTest, OfTheLowestRankThatLogsAName) {
    for (auto& page : pages) log_scalar(page, "loss", 3, 1);
    log_scalar(pages[2], "last stage", 5, 1);
    log_scalar(pages[3], "last stage", 6, 1);
    EXPECT_EQ(told(), (Told{"0/0=loss:3", "2/1=last stage:5"}));
    EXPECT_EQ(told(), Told()) << "nothing is new";
    for (auto& page : pages) log_scalar(page, "loss", 2, 2);
    EXPECT_EQ(told(), Told{"0/0=:2"}) << "its name is known";
    log_scalar(pages[0], "loss", 2, 3);
    EXPECT_EQ(told(), Told{"0/0=:2"}) << "the same value, logged again";
}

TEST_F(NewScalarsTest, OfTheOthersWhatBecomesNoNumberOrOneAgain) {
    for (auto& page : pages) log_scalar(page, "loss", 3, 1);
    told();
    log_scalar(pages[2], "loss", NAN, 2);
    EXPECT_EQ(told(), Told{"2/0=loss:nan"});
    log_scalar(pages[2], "loss", HUGE_VAL, 3);
    log_scalar(pages[3], "loss", 1, 3);
    EXPECT_EQ(told(), Told()) << "it was no number before";
    log_scalar(pages[2], "loss", 1, 4);
    EXPECT_EQ(told(), Told{"2/0=:1"});
}

TEST_F(NewScalarsTest, ANewGenerationTellsNamesAgain) {
    log_scalar(pages[0], "loss", 3, 1);
    told();
    scalars.begin_generation(8);
    EXPECT_EQ(told(), Told()) << "a survivor has logged nothing yet";
    log_scalar(pages[0], "loss", 2, 1);
    EXPECT_EQ(told(), Told{"0/0=loss:2"});
}

TEST_F(NewScalarsTest, OfALargeWorldsOtherNodesOnlyNowAndThen) {
    scalars.begin_generation(65);
    size_t seen = 0;
    for (uint64_t step = 1; step <= 30; ++step) {
        log_scalar(pages[0], "loss", 3, step);
        seen += told().size();
    }
    EXPECT_EQ(seen, 3u);
    log_scalar(pages[0], "loss", NAN, 31);
    told();
    log_scalar(pages[0], "loss", NAN, 32);
    EXPECT_EQ(told(), Told());
    log_scalar(pages[0], "loss", 1, 33);
    EXPECT_EQ(told(), Told{"0/0=:1"}) << "a number again: at once";
}

TEST_F(NewScalarsTest, OfASmallWorldsOtherNodesOftenInTheBeginning) {
    const auto seen_in = [this](uint64_t from, uint64_t until) {
        size_t seen = 0;
        for (uint64_t step = from; step < until; ++step) {
            log_scalar(pages[0], "loss", 3, step);
            seen += told().size();
        }
        return seen;
    };
    scalars.begin_generation(8);
    EXPECT_EQ(seen_in(0, 300), 300u) << "five minutes";
    scalars.begin_generation(8);
    EXPECT_EQ(seen_in(300, 1000), 70u) << "also of the next generation";
}

TEST_F(NewScalarsTest, ARankThatEndsLeavesNothingForLater) {
    scalars.begin_generation(65);
    log_scalar(pages[0], "loss", 3, 1);
    EXPECT_EQ(told(), Told{"0/0=loss:3"});
    log_scalar(pages[0], "loss", 2, 2);
    EXPECT_EQ(told(), Told()) << "of a large world, only now and then";
    EXPECT_TRUE(scalars.has_new(ranks()));
    record::Sample last;
    scalars.add_to(last, ranks(), true);
    ASSERT_EQ(last.scalars_size(), 1);
    EXPECT_EQ(last.scalars(0).value(), 2);
    EXPECT_FALSE(scalars.has_new(ranks()));
    log_scalar(pages[1], "loss", 7, 2);
    EXPECT_FALSE(scalars.has_new(ranks())) << "it is not the lowest rank's";
}

TEST(NewScalars, APageThatCannotBeReadForOnceChangesNothing) {
    NewScalars scalars;
    PhasePage page;
    log_scalar(page, "loss", NAN, 1);
    record::Sample sample;
    for (const PhasePage* now : {&page, static_cast<PhasePage*>(nullptr), &page})
        scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 1, now}});
    EXPECT_EQ(sample.scalars_size(), 1);
}

TEST(NewScalars, APlaceWithAnotherNameIsTold) {
    NewScalars scalars;
    PhasePage page, renamed;
    log_scalar(page, "loss", 1, 1);
    log_scalar(renamed, "accuracy", 1, 1);
    log_scalar(renamed, "accuracy", 1, 2);
    record::Sample sample;
    scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 1, &page}});
    scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 1, &renamed}});
    ASSERT_EQ(sample.scalars_size(), 2);
    EXPECT_EQ(sample.scalars(1).name(), "accuracy");
}

TEST(NewScalars, OfALargeWorldsRankZeroEachValue) {
    NewScalars scalars;
    scalars.begin_generation(1024);
    PhasePage page;
    record::Sample sample;
    for (uint64_t step = 1; step <= 30; ++step) {
        log_scalar(page, "loss", 3, step);
        scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 1, &page}});
    }
    EXPECT_EQ(sample.scalars_size(), 30);
}

TEST(NewScalars, AnotherProcessBeginsAnew) {
    NewScalars scalars;
    PhasePage first, second;
    log_scalar(first, "loss", 3, 1);
    log_scalar(second, "accuracy", 1, 1);
    record::Sample sample;
    scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 1, &first}});
    scalars.add_to(sample, std::vector<NewScalars::Rank>{{0, 0, 2, &second}});
    ASSERT_EQ(sample.scalars_size(), 2);
    EXPECT_EQ(sample.scalars(1).name(), "accuracy");
}

TEST(NewScalars, AnEntryOfManyRanksCanStillBeRead) {
    PhasePage page;
    for (size_t i = 0; i < kMostScalars; ++i)
        log_scalar(page, std::string(kMaxScalarName - 1, 'x') + std::to_string(i), NAN, UINT64_MAX);
    std::vector<NewScalars::Rank> ranks;
    for (uint32_t i = 0; i < 4096; ++i) ranks.push_back({i, i, i + 1, &page});
    NewScalars scalars;
    size_t all = 0;
    for (int i = 0; i < 17; ++i) {
        record::Entry entry;
        scalars.add_to(*entry.mutable_sample(), ranks);
        EXPECT_LT(bytes_of(entry).size(), kMaxRecordEntry / 4) << "beside phases (sample_reader.cpp)";
        all += static_cast<size_t>(entry.sample().scalars_size());
    }
    EXPECT_EQ(all, 4096 * kMostScalars) << "each is in one of them";
}

}  // namespace
}  // namespace dp
