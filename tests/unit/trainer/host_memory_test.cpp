// SPDX-License-Identifier: Apache-2.0
//
// What a host still has, from the kernel's files, which the tests write.
#include "trainer/devices/host_memory.hpp"

#include <gtest/gtest.h>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

// A machine of 8000 kB with 5000 kB left.
class HostMemory : public ::testing::Test {
 protected:
    HostMemory() {
        directory_.write("proc/meminfo",
                         "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\n");
    }
    void write(const std::string& name, const std::string& text) { directory_.write(name, text); }
    std::optional<std::int64_t> available() {
        return available_host_memory(directory_ / "proc", directory_ / "cgroup");
    }

 private:
    Scratch directory_;
};

TEST_F(HostMemory, IsTheMachinesWhereNothingIsLimited) {
    EXPECT_EQ(available(), 5000 * 1024);
    write("proc/self/cgroup", "0::/a/b\n");
    write("cgroup/a/b/memory.max", "max\n");
    write("cgroup/a/b/memory.current", "1000\n");
    EXPECT_EQ(available(), 5000 * 1024);
}

TEST_F(HostMemory, IsTheTightestOfTheGroupAndThoseAboveIt) {
    write("proc/self/cgroup", "0::/job_1/step_0/task_2\n");
    write("cgroup/job_1/step_0/memory.max", "3000000\n");
    write("cgroup/job_1/step_0/memory.current", "1000000\n");
    EXPECT_EQ(available(), 2000000);
    write("cgroup/job_1/memory.max", "1500000\n");
    write("cgroup/job_1/memory.current", "1400000\n");
    write("cgroup/job_1/memory.stat", "anon 5\nfile 60000\ninactive_file 50000\n");
    EXPECT_EQ(available(), 150000);
    write("cgroup/job_1/memory.current", "9400000\n");
    EXPECT_EQ(available(), 0);
}

TEST_F(HostMemory, OfVersion1IsInTheControllersOwnTree) {
    write("proc/self/cgroup", "12:cpuset:/x\n9:memory:/slurm/uid_0\n1:name=systemd:/y\n");
    write("cgroup/memory/slurm/uid_0/memory.limit_in_bytes", "2000000\n");
    write("cgroup/memory/slurm/uid_0/memory.usage_in_bytes", "500000\n");
    EXPECT_EQ(available(), 1500000);
}

TEST(HostMemoryAnywhere, IsNotKnownWithoutTheKernelsFiles) {
    EXPECT_FALSE(available_host_memory("/nowhere", "/nowhere"));
    EXPECT_GT(available_host_memory().value_or(0), 0) << "of this machine";
}

}  // namespace
}  // namespace dp::trainer
