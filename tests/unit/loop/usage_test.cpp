// SPDX-License-Identifier: Apache-2.0
//
// What the daemon reads of a rank's process: its name, and its page, but no other kind of descriptor.
#include "loop/usage.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "common/phase_page.hpp"

namespace dp {
namespace {

Fd memfd(const char* name, off_t bytes) {
    Fd fd(memfd_create(name, MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
    return fd;
}

TEST(CpuTime, IsWhatAllThreadsOfAProcessHaveWorked) {
    const auto before = cpu_ns_of(getpid());
    ASSERT_TRUE(before);
    std::jthread([] {
        std::atomic<int64_t> work = 0;
        while (work < 5'000'000) ++work;
    }).join();
    const auto after = cpu_ns_of(getpid());
    ASSERT_TRUE(after);
    EXPECT_GT(*after - *before, 2'000'000);
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
    EXPECT_FALSE(cpu_ns_of(gone));
}

// In memory, as a rank has it.
Fd page_in_phase(uint64_t phase, int64_t since_ns) {
    Fd fd = memfd(kPhasePageName, kPhasePageBytes);
    PhasePage page;
    page.version = kPhasePageVersion;
    page.phase = phase;
    page.since_ns = since_ns;
    EXPECT_EQ(pwrite(fd.get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
    return fd;
}

TEST(UsageReader, ReadsThePhasesOfAPage) {
    UsageReader reader;
    const Fd page = page_in_phase(2, 100);
    reader.open(7, getpid(), page.get());
    wire::NodeUsage::Rank rank;
    reader.read(rank, getpid(), 7, 350);
    EXPECT_EQ(rank.pid(), getpid());
    EXPECT_EQ(rank.command(), "engine-tests");
    EXPECT_EQ(std::vector<int64_t>(rank.phase_ns().begin(), rank.phase_ns().end()),
              (std::vector<int64_t>{0, 0, 250, 0, 0}));
    // Another page takes its place; a closed connection has none.
    const Fd other = page_in_phase(1, 0);
    reader.open(7, getpid(), other.get());
    rank.Clear();
    reader.read(rank, getpid(), 7, 350);
    EXPECT_EQ(rank.phase_ns(1), 350);
    reader.close(7);
    for (const std::optional<ConnectionId> none : {std::optional<ConnectionId>(7), {}}) {
        rank.Clear();
        reader.read(rank, 0, none, 350);
        EXPECT_EQ(rank.phase_ns_size() + rank.pid(), 0);
        EXPECT_EQ(rank.command(), "");
    }
}

TEST(UsageReader, OpensNothingButSuchAPage) {
    const Fd page = page_in_phase(0, 0);
    EXPECT_TRUE(open_phase_page(getpid(), page.get()));
    EXPECT_FALSE(open_phase_page(0, page.get()));
    EXPECT_FALSE(open_phase_page(getpid(), -1));
    EXPECT_FALSE(open_phase_page(getpid(), 100000));
    const Fd another = memfd("another", kPhasePageBytes);
    const Fd larger = memfd(kPhasePageName, kPhasePageBytes + 1);
    const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    for (const Fd* fd : {&another, &larger, &file, &null, &read_end})
        EXPECT_FALSE(open_phase_page(getpid(), fd->get()));
    // The daemon cannot write into it.
    const Fd opened = open_phase_page(getpid(), page.get());
    EXPECT_EQ(fcntl(opened.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST(UsageReader, APageThatShrinksIsNoneAndDoesNoHarm) {
    UsageReader reader;
    const Fd page = page_in_phase(2, 100);
    reader.open(1, getpid(), page.get());
    ASSERT_EQ(ftruncate(page.get(), 10), 0);
    wire::NodeUsage::Rank rank;
    reader.read(rank, getpid(), 1, 350);
    EXPECT_EQ(rank.phase_ns_size(), 0);
    EXPECT_EQ(rank.pid(), getpid());
}

}  // namespace
}  // namespace dp
