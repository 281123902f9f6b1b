// SPDX-License-Identifier: Apache-2.0
//
// The page between a rank that says what it is doing and a daemon that wants to know: what was written is
// read, never half of it, and nothing that stands there does harm.
#include "common/phase_page.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/fd.hpp"

namespace dp {
namespace {

class SharedPage {
 public:
    SharedPage() : fd(memfd_create(kPhasePageName, MFD_CLOEXEC)) {
        EXPECT_EQ(ftruncate(fd.get(), kPhasePageBytes), 0);
        at_ = mmap(nullptr, kPhasePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    }
    ~SharedPage() { munmap(at_, kPhasePageBytes); }
    PhasePage& operator*() { return *static_cast<PhasePage*>(at_); }
    // As the daemon reads it.
    std::optional<PhaseTimes> times(int64_t now_ns) const {
        const auto page = read_phase_page(fd.get());
        return page ? phase_times(*page, now_ns) : std::nullopt;
    }
    PhasePage read() const { return *read_phase_page(fd.get()); }
    Fd fd;

 private:
    void* at_;
};

TEST(PhasePage, TimeGoesToThePhaseThatIsOn) {
    SharedPage page;
    EXPECT_FALSE(page.times(5)) << "nobody has written it";
    begin_phases(*page, 1, 1000);
    EXPECT_EQ(page.times(1000), (PhaseTimes{0, 0, 0, 0, 0}));
    EXPECT_EQ(page.times(1500), (PhaseTimes{0, 500, 0, 0, 0}));
    enter_phase(*page, 3, 1600);
    enter_phase(*page, 3, 1700);
    EXPECT_EQ(page.times(2000), (PhaseTimes{0, 600, 0, 400, 0}));
    enter_phase(*page, 1, 2000);
    enter_phase(*page, 0, 2001);
    EXPECT_EQ(page.times(2001), (PhaseTimes{0, 601, 0, 400, 0}));
    EXPECT_EQ(page.times(1), (PhaseTimes{0, 1, 0, 1, 0})) << "a clock that is not the rank's";
}

TEST(PhasePage, ThePhasesThatHaveEndedAreKept) {
    SharedPage page;
    const auto since = [&](uint64_t count, int64_t now_ns = 1'000'000) {
        return ended_phases(*read_phase_page(page.fd.get()), count, now_ns);
    };
    begin_phases(*page, 1, 1000);
    EXPECT_TRUE(since(0).empty());
    enter_phase(*page, 3, 1600);
    end_step(*page, 1650);
    end_step(*page, 1700);
    enter_phase(*page, 1, 2000);
    EXPECT_EQ(since(0), (std::vector<PhaseInterval>{{1000, 1600, 1, 0}, {1600, 2000, 3, 0}}));
    EXPECT_EQ(since(1), (std::vector<PhaseInterval>{{1600, 2000, 3, 0}}));
    EXPECT_TRUE(since(2).empty());
    for (int64_t i = 0; i < 1000; ++i) enter_phase(*page, i % 2 == 0 ? 2 : 1, 2001 + i);
    const auto kept = since(2);
    ASSERT_EQ(kept.size(), kEndedPhases);
    EXPECT_EQ(kept.back(), (PhaseInterval{2999, 3000, 2, 1}));
    for (size_t i = 1; i < kept.size(); ++i) EXPECT_EQ(kept[i].from_ns, kept[i - 1].until_ns);
}

TEST(PhasePage, WhateverStandsThereNoPhaseIsBeforeAnotherOrLaterThanNow) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 2000; ++round) {
        PhasePage page;
        page.version = kPhasePageVersion;
        page.since_ns = static_cast<int64_t>(random());
        page.ended_count = random() >> (random() % 64);
        for (auto& one : page.ended) one = {static_cast<int64_t>(random()), random()};
        int64_t at = 0;
        for (const PhaseInterval& one : ended_phases(page, random() >> (random() % 64), 5000)) {
            ASSERT_GE(one.from_ns, at);
            ASSERT_GE(one.until_ns, one.from_ns);
            ASSERT_LE(one.until_ns, 5000);
            ASSERT_LT(one.phase, kPhases);
            at = one.until_ns;
        }
    }
}

// Steps that end in a wait for the others: in each the rank works for so long, and waits for 5.
void take_steps(PhasePage& page, int64_t& now, const std::vector<int64_t>& own) {
    for (const int64_t work : own) {
        enter_phase(page, 1, now);
        enter_phase(page, 2, now += work / 2);
        enter_phase(page, kWaits, now += work - work / 2);
        end_step(page, now += 5);
    }
}

TEST(PhasePage, OwnTimeIsThatOfTheUsualStepOfLate) {
    SharedPage page;
    int64_t now = 1000;
    begin_phases(*page, 0, now);
    EXPECT_FALSE(own_time_of_step(*page));
    end_step(*page, now += 500);  // what was before the first step is none
    take_steps(*page, now, std::vector<int64_t>(kHalfLife - 1, 20));
    EXPECT_FALSE(own_time_of_step(*page)) << "too few";
    take_steps(*page, now, {20});
    EXPECT_EQ(own_time_of_step(*page), 20);
    EXPECT_EQ(read_phase_page(page.fd.get())->steps, kHalfLife);
    take_steps(*page, now, {900, 20, 900, 20, 900});
    EXPECT_EQ(own_time_of_step(*page), 20) << "a checkpoint now and then";
    take_steps(*page, now, std::vector<int64_t>(100, 20));
    take_steps(*page, now, std::vector<int64_t>(kHalfLife - 1, 30));
    EXPECT_EQ(own_time_of_step(*page), 20) << "of late, but not for long";
    take_steps(*page, now, {30, 30});
    EXPECT_EQ(own_time_of_step(*page), 30);
}

TEST(PhasePage, OwnTimeOfGarbageIsNoneOrNotNegative) {
    std::mt19937_64 random(2);
    for (int i = 0; i < 10000; ++i) {
        PhasePage page;
        page.version = random() % 4 == 0 ? random() : kPhasePageVersion;
        page.steps = random() >> random() % 64;
        for (auto& own : page.own_ns) own = static_cast<int64_t>(random());
        if (const auto own = own_time_of_step(page)) {
            ASSERT_GE(*own, 0);
        }
    }
}

TEST(PhasePage, GarbageIsNoPageOrHasTimesThatCanBe) {
    std::mt19937_64 random(1);
    size_t read = 0;
    for (int i = 0; i < 100000; ++i) {
        PhasePage page;
        page.version = random() % 4 == 0 ? random() : kPhasePageVersion;
        page.phase = random() % 4 == 0 ? random() : random() % 8;
        page.since_ns = static_cast<int64_t>(random() >> random() % 64);
        for (auto& total : page.total_ns) total = static_cast<int64_t>(random() >> random() % 64);
        const auto now = static_cast<int64_t>(random() >> random() % 64);
        const auto times = phase_times(page, now);
        if (!times) continue;
        ++read;
        for (const int64_t time : *times) {
            ASSERT_GE(time, 0);
            ASSERT_LE(time, std::max<int64_t>(now, 0));
        }
    }
    EXPECT_GT(read, 10000u);
}

TEST(PhasePage, AFileThatIsTooShortOrForEverBeingWrittenIsNone) {
    SharedPage page;
    begin_phases(*page, 1, 1);
    const uint64_t odd = 7;
    ASSERT_EQ(pwrite(page.fd.get(), &odd, sizeof odd, offsetof(PhasePage, sequence)),
              static_cast<ssize_t>(sizeof odd));
    EXPECT_FALSE(page.times(5));
    const Fd short_file(memfd_create("short", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(short_file.get(), sizeof(PhasePage) - 1), 0);
    EXPECT_FALSE(read_phase_page(short_file.get()));
    EXPECT_FALSE(read_phase_page(-1));
}

// The writer's clock ticks once a change, so that the sum of all times is the number of changes.
// name, value, step of each, by its place.
using Told = std::vector<std::tuple<std::string, double, uint64_t>>;
Told told(const PhasePage& page) {
    Told all;
    for (const LoggedScalar& one : logged_scalars(page)) all.emplace_back(one.name, one.value, one.step);
    return all;
}

TEST(PhasePage, AScalarIsWhatWasLoggedLast) {
    SharedPage page;
    EXPECT_EQ(told(page.read()), Told());
    EXPECT_TRUE(log_scalar(*page, "loss", 2.5, 1));
    EXPECT_TRUE(log_scalar(*page, "samples_per_second", 1e9, 1));
    EXPECT_TRUE(log_scalar(*page, "loss", -0.25, 7));
    EXPECT_EQ(told(page.read()), (Told{{"loss", -0.25, 7}, {"samples_per_second", 1e9, 1}}));
    EXPECT_EQ(logged_scalars(page.read())[0].logged, 2u);
    EXPECT_FALSE(phase_times(page.read(), 1)) << "no phase has begun";
    begin_phases(*page, 1, 100);
    end_step(*page, 200);
    EXPECT_TRUE(phase_times(page.read(), 200));
    EXPECT_EQ(told(page.read()).size(), 2u) << "a phase takes none away";
}

TEST(PhasePage, ScalarsThatAreNotFiniteStayWhatTheyAre) {
    SharedPage page;
    log_scalar(*page, "nan", std::nan(""), 1);
    log_scalar(*page, "above", HUGE_VAL, 1);
    log_scalar(*page, "below", -HUGE_VAL, 1);
    const auto all = logged_scalars(page.read());
    ASSERT_EQ(all.size(), 3u);
    EXPECT_TRUE(std::isnan(all[0].value));
    EXPECT_EQ(all[1].value, HUGE_VAL);
    EXPECT_EQ(all[2].value, -HUGE_VAL);
}

TEST(PhasePage, HasRoomForSoManyScalars) {
    SharedPage page;
    for (size_t i = 0; i < kMostScalars; ++i)
        EXPECT_TRUE(log_scalar(*page, "scalar " + std::string(i, 'x'), 1, 0));
    EXPECT_FALSE(log_scalar(*page, "one more", 1, 0));
    EXPECT_TRUE(log_scalar(*page, "scalar xx", 2, 3)) << "that has a place";
    EXPECT_EQ(told(page.read())[2], std::tuple("scalar xx", 2.0, uint64_t{3}));
    EXPECT_EQ(told(page.read()).size(), kMostScalars);
}

TEST(PhasePage, NamesOfScalarsAreShortPrintableAscii) {
    const std::string longest(kMaxScalarName, 'x');
    for (const auto& name : {std::string("a"), std::string("train/loss (mean) ~"), longest})
        EXPECT_TRUE(is_scalar_name(name)) << name;
    for (const auto& name : {std::string(), longest + "x", std::string("a\nb"), std::string("\xc3\xa9"),
                             std::string("a\0b", 3), std::string("\x7f")})
        EXPECT_FALSE(is_scalar_name(name)) << name;
    SharedPage page;
    log_scalar(*page, longest, 1, 0);
    EXPECT_EQ(logged_scalars(page.read()).at(0).name, longest);
}

TEST(PhasePage, ScalarsOfGarbageHaveNamesThatTheyCanHave) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 2000; ++i) {
        PhasePage page;
        for (auto& scalar : page.scalars) {
            scalar.logged = random() % 3;
            for (auto& word : scalar.name) word = random() % 2 == 0 ? random() : 0x6161616161616161;
        }
        for (const LoggedScalar& one : logged_scalars(page)) EXPECT_TRUE(is_scalar_name(one.name));
    }
}

TEST(PhasePage, IsReadWholeWhileItIsWritten) {
    SharedPage page;
    begin_phases(*page, 0, 0);
    std::atomic<bool> stop = false;
    std::thread writer([&] {
        for (int64_t now = 1; !stop; ++now) enter_phase(*page, static_cast<uint64_t>(now) % kPhases, now);
    });
    int whole = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto read = read_phase_page(page.fd.get());
        if (!read) continue;
        ++whole;
        EXPECT_EQ(std::accumulate(read->total_ns.begin(), read->total_ns.end(), int64_t{0}), read->since_ns);
        EXPECT_EQ(read->sequence, 2 * static_cast<uint64_t>(read->since_ns));
    }
    stop = true;
    writer.join();
    EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace dp
