// SPDX-License-Identifier: Apache-2.0
#include "loop/pace.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace dp {
namespace {

constexpr const char* kStat =
    "4711 (a) b (c)) R 1 4711 4711 0 -1 4194304 100 0 17 0 5 3 0 0 20 0 1 0 100 1000 10 "
    "18446744073709551615\n";
constexpr const char* kSnmp =
    "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
    "Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 500 400 23 0\nUdp: InDatagrams\nUdp: 1\n";

TEST(PaceCounters, AreReadFromTheirFiles) {
    const PaceCounters counters =
        read_counters("123 456 7\n", kStat, kSnmp, "usage_usec 5\nnr_periods 9\nnr_throttled 2\n");
    EXPECT_EQ(counters, (PaceCounters{456, 2, 9, 17, 23, {}}));
}

TEST(PaceCounters, AreUnknownWhereTheirFilesAreNotOrSaySomethingElse) {
    for (const char* text :
         {"", "\n", "1", "a b c\n", "Tcp: RetransSegs\n", "Tcp:\nTcp:\n", "nr_periods\n", "(x) S"})
        EXPECT_EQ(read_counters(text, text, text, text), PaceCounters{}) << text;
}

TEST(PaceReader, TheWorstGpuOfARankIsItsOwn) {
    wire::NodeUsage gpus;
    const auto add = [&](std::initializer_list<pid_t> pids, double clock_lost, bool is_slowed,
                         uint64_t lost_bits, uint64_t xid_line) {
        auto& gpu = *gpus.add_gpus();
        gpu.set_tile(static_cast<uint32_t>(gpus.gpus_size()));
        for (const pid_t pid : pids) gpu.add_pids(pid);
        gpu.set_clock_lost(clock_lost);
        gpu.set_is_slowed(is_slowed);
        gpu.set_lost_bits(lost_bits);
        gpu.set_xid_line(xid_line);
        gpu.set_last_xid(94);
    };
    add({7, 8}, 0.1, false, 5, 2);
    add({8, 9}, 0.3, true, 0, 0);
    PaceReader reader;
    wire::RankPace pace;
    reader.note_gpu(pace, 8, gpus);
    EXPECT_EQ(pace.gpu_clock_lost(), 0.3);
    EXPECT_EQ(pace.gpu_slowed(), 1);
    EXPECT_EQ(pace.gpu_errors(), 0) << "those of its past";
    EXPECT_TRUE(pace.has_gpu_xid());
    EXPECT_EQ(pace.gpu_xid(), 0) << "those of its past";
    gpus.mutable_gpus(0)->set_lost_bits(7);
    gpus.mutable_gpus(0)->set_xid_line(3);
    reader.note_gpu(pace, 8, gpus);
    EXPECT_EQ(pace.gpu_errors(), 2);
    EXPECT_EQ(pace.gpu_xid(), 94);
    gpus.mutable_gpus(0)->set_xid_line(0);  // the kernel's log begins later now
    wire::RankPace later;
    reader.note_gpu(later, 8, gpus);
    EXPECT_EQ(later.gpu_xid(), 0);
    gpus.mutable_gpus(1)->clear_is_slowed();
    gpus.mutable_gpus(0)->clear_is_slowed();
    wire::RankPace unknown;
    reader.note_gpu(unknown, 8, gpus);
    EXPECT_FALSE(unknown.has_gpu_slowed());
    wire::RankPace other;
    reader.note_gpu(other, 10, gpus);
    EXPECT_FALSE(other.has_gpu_clock_lost() || other.has_gpu_slowed() || other.has_gpu_errors() ||
                 other.has_gpu_xid());
}

TEST(PaceReader, TellsHowFastARankIsSinceTheLastTime) {
    constexpr int64_t kMs = 1'000'000;
    PhasePage page;
    PaceReader reader;
    begin_phases(page, 1, kMs);
    end_step(page, kMs);
    int64_t now = kMs;
    const auto take_steps = [&](int steps) {
        for (int i = 0; i < steps; ++i) {
            enter_phase(page, 1, now);
            enter_phase(page, 3, now += 30 * kMs);
            end_step(page, now += 10 * kMs);
        }
    };
    take_steps(static_cast<int>(kHalfLife) - 1);
    EXPECT_FALSE(reader.read(5, 1, getpid(), page, now)) << "too few to say";
    take_steps(1);
    auto pace = reader.read(5, 1, getpid(), page, now);
    ASSERT_TRUE(pace);
    EXPECT_EQ(pace->own_ns(), 30 * kMs);
    EXPECT_EQ(pace->phase_ns_size(), 0);
    EXPECT_FALSE(reader.read(5, 1, getpid(), page, now + kMs)) << "nothing new";
    take_steps(100);
    pace = reader.read(5, 1, getpid(), page, now);
    ASSERT_TRUE(pace);
    EXPECT_EQ(pace->steps(), kHalfLife + 100);
    EXPECT_EQ(pace->phase_ns(1), 30 * kMs);
    EXPECT_EQ(pace->phase_ns(3), 10 * kMs);
    EXPECT_GE(pace->core_waited(), 0);
    EXPECT_TRUE(pace->has_major_faults());
    EXPECT_FALSE(reader.has_slowed_down());
    for (int i = 0; i < 2 * static_cast<int>(kHalfLife); ++i) {
        enter_phase(page, 1, now);
        enter_phase(page, 3, now += 40 * kMs);
        end_step(page, now += 10 * kMs);
    }
    EXPECT_TRUE(reader.read(5, 1, getpid(), page, now));
    EXPECT_TRUE(reader.has_slowed_down());
    // Another program of the same rank.
    take_steps(1);
    EXPECT_EQ(reader.read(5, 2, getpid(), page, now)->phase_ns_size(), 0);
    EXPECT_FALSE(reader.has_slowed_down());
}

}  // namespace
}  // namespace dp
