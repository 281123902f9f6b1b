// SPDX-License-Identifier: Apache-2.0
//
// The checks of a machine's kernel, network, cores and disks: each fault is found, and nothing else is.
#include "../tiles/fake_tree.hpp"
#include "doctor/cores.hpp"
#include "doctor/disks.hpp"
#include "doctor/kernel.hpp"
#include "doctor/network.hpp"
#include "found.hpp"

namespace dp::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DoctorKernel, FindsEachFaultAndNothingElse) {
    KernelFacts healthy;
    healthy.has_rdma = true;
    healthy.ptrace_scope = 0;
    healthy.huge_pages = "always";
    healthy.huge_pages_defrag = "madvise";
    healthy.is_clock_synchronized = true;
    expect_found<KernelFacts>(
        {
            {[](auto& f) { f.locked_memory.rlim_cur = 65536; }, "locked memory", Level::fault, "64 KiB",
             "LimitMEMLOCK"},
            {[](auto& f) {
                 f.open_files = {256, 1048576};
             },
             "open files", Level::warning, "256, may be raised to 1048576", "ulimit -n"},
            {[](auto& f) {
                 f.open_files = {512, 512};
             },
             "open files", Level::warning, "512", "LimitNOFILE"},
            {[](auto& f) { f.processes.rlim_cur = 200; }, "processes", Level::warning, "200", "LimitNPROC"},
            {[](auto& f) { f.core_size.rlim_cur = RLIM_INFINITY; }, "core files", Level::warning,
             "unlimited, to core", "ulimit -c 0"},
            {[](auto& f) { f.ptrace_scope = 1; }, "ptrace", Level::warning, "ptrace_scope=1", "sysctl"},
            {[](auto& f) { f.ptrace_scope = 3; }, "ptrace", Level::warning, "ptrace_scope=3", "reboot"},
            {[](auto& f) {
                 f.ephemeral = {1024, 65535};
             },
             "ephemeral ports", Level::warning, "1024 to 65535", "32768 60999"},
            {[](auto& f) {
                 f.ephemeral = {60000, 60999};
             },
             "ephemeral ports", Level::warning, "60000 to 60999", "32768 60999"},
            {[](auto& f) { f.huge_pages_defrag = "always"; }, "huge pages", Level::warning, "defrag always",
             "madvise"},
            {[](auto& f) { f.is_clock_synchronized = false; }, "clock", Level::warning,
             "nothing synchronizes it", "chrony"},
        },
        healthy, check_kernel);
}

TEST(DoctorKernel, DoesNotAskForWhatNobodyNeeds) {
    KernelFacts facts;
    facts.locked_memory.rlim_cur = 65536;  // and no RDMA adapter
    facts.core_size.rlim_cur = RLIM_INFINITY;
    facts.core_pattern = "|/lib/systemd/systemd-coredump";
    facts.processes.rlim_cur = 100;
    facts.is_root = true;
    facts.has_rdma = true;
    facts.huge_pages = "never";
    facts.huge_pages_defrag = "always";
    EXPECT_EQ(complaints(check_kernel(facts)), std::vector<std::string>());
}

TEST(DoctorKernel, ReadsItsSettings) {
    const FakeTree tree;
    tree.file("/proc/sys/kernel/yama/ptrace_scope", "2\n");
    tree.file("/proc/sys/kernel/core_pattern", "|/usr/lib/handler %p\n");
    tree.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    tree.file("/sys/kernel/mm/transparent_hugepage/defrag", "always defer [never]\n");
    tree.file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    const KernelFacts facts = read_kernel(tree.root());
    EXPECT_EQ(facts.ptrace_scope, 2);
    EXPECT_EQ(facts.core_pattern, "|/usr/lib/handler %p");
    EXPECT_EQ(facts.huge_pages, "madvise");
    EXPECT_EQ(facts.huge_pages_defrag, "never");
    EXPECT_TRUE(facts.has_rdma);
}

NetworkFacts healthy_network() {
    NetworkFacts facts;
    facts.host = "node01";
    facts.addresses = {"10.1.0.5"};
    Interface lo, eth;
    lo.address = {"lo", "127.0.0.1", 8, true};
    lo.mtu = 65536;
    eth.address = {"eth0", "10.1.0.5", 16, true};
    eth.mtu = 9000;
    eth.megabits = 25000;
    facts.interfaces = {lo, eth};
    facts.rdma_ports = {{"mlx5_0 port 1", "ACTIVE", "LinkUp", "200 Gb/sec (4X HDR)"}};
    return facts;
}

TEST(DoctorNetwork, FindsEachFaultAndNothingElse) {
    expect_found<NetworkFacts>(
        {
            {[](auto& f) { f.addresses = {"127.0.1.1"}; }, "host name", Level::warning, "node01 is 127.0.1.1",
             "put 10.1.0.5"},
            {[](auto& f) { f.addresses.clear(), f.resolver_problem = "Name or service not known"; },
             "host name", Level::fault, "does not resolve", "10.1.0.5 node01"},
            {[](auto& f) { f.addresses = {"10.9.9.9"}; }, "host name", Level::fault,
             "no interface of this host has", "put 10.1.0.5"},
            {[](auto& f) { f.interfaces[1].mtu = 1280; }, "network", Level::warning, "MTU 1280",
             "other nodes"},
            {[](auto& f) { f.interfaces[1].megabits = 100; }, "network", Level::warning, "100 Mbit/s",
             "ethtool eth0"},
            {[](auto& f) { f.interfaces[1].has_carrier = false; }, "network", Level::fault, "no carrier",
             "ip link show eth0"},
            {[](auto& f) { f.rdma_ports[0].state = "INIT"; }, "RDMA mlx5_0 port 1", Level::fault, "INIT",
             "opensm"},
            {[](auto& f) {
                 f.rdma_ports[0] = {"mlx5_0 port 1", "DOWN", "Polling", "10 Gb/sec"};
             },
             "RDMA mlx5_0 port 1", Level::warning, "DOWN, Polling", "ibstat"},
        },
        healthy_network(), check_network);
}

TEST(DoctorNetwork, AMachineAloneCannotMeetOthers) {
    NetworkFacts facts = healthy_network();
    facts.interfaces.pop_back();
    facts.addresses = {"127.0.0.1"};
    EXPECT_THAT(complaints(check_network(facts)), ElementsAre("network"));
}

TEST(DoctorNetwork, ReadsThePortsOfRdmaAdapters) {
    const FakeTree tree;
    for (const char* adapter : {"mlx5_1", "mlx5_0"}) {
        const std::string folder = std::string("/sys/class/infiniband/") + adapter + "/ports/1";
        tree.file(folder + "/state", "4: ACTIVE\n");
        tree.file(folder + "/phys_state", "5: LinkUp\n");
        tree.file(folder + "/rate", "200 Gb/sec (4X HDR)\n");
    }
    const NetworkFacts facts = read_network(tree.root());
    ASSERT_EQ(facts.rdma_ports.size(), 2U);
    EXPECT_EQ(facts.rdma_ports[0].name, "mlx5_0 port 1");
    EXPECT_EQ(facts.rdma_ports[0].state, "ACTIVE");
    EXPECT_EQ(facts.rdma_ports[0].link, "LinkUp");
    EXPECT_FALSE(facts.host.empty());
    EXPECT_FALSE(facts.interfaces.empty());
}

TEST(DoctorCores, FindsEachFaultAndNothingElse) {
    CoreFacts healthy;
    healthy.online = 64;
    healthy.allowed = 16;
    healthy.cgroup_version = 2;
    healthy.quota = 16;
    healthy.governors = {"powersave"};
    healthy.frequency_driver = "intel_pstate";
    healthy.memory_bandwidth = {20e9, 0, 18e9};
    expect_found<CoreFacts>(
        {
            {[](auto& f) { f.quota = 0.5, f.cgroup = "/slurm", f.throttled_seconds = 12.5; }, "CPUs",
             Level::warning, "cgroup /slurm allows the time of 0.5; it has been kept waiting for 12.5 s",
             "/sys/fs/cgroup/slurm/cpu.max"},
            {[](auto& f) { f.quota = 0.5, f.cgroup = "/slurm", f.cgroup_version = 1; }, "CPUs",
             Level::warning, "0.5", "cpu.cfs_quota_us"},
            {[](auto& f) { f.frequency_driver = "acpi-cpufreq"; }, "CPU frequency", Level::warning,
             "powersave", "performance"},
            {[](auto& f) { f.slowed_by_heat = 3; }, "heat", Level::warning, "3 times", "fans"},
            {[](auto& f) { f.memory_bandwidth[2] = 5e9; }, "memory", Level::warning, "node 2: 5 GB/s",
             "dmidecode"},
        },
        healthy, check_cores);
}

TEST(DoctorCores, ReadTheSmallestQuotaOfTheGroupsAround) {
    const FakeTree tree;
    tree.file("/proc/self/cgroup", "0::/system.slice/slurmd.service/step_0\n");
    tree.file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    tree.file("/sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n");
    tree.file("/sys/fs/cgroup/system.slice/cpu.stat",
              "usage_usec 5\nnr_throttled 7\nthrottled_usec 2500000\n");
    tree.file("/sys/fs/cgroup/system.slice/slurmd.service/step_0/cpu.max", "200000 100000\n");
    const CoreFacts facts = read_cores(tree.root());
    EXPECT_EQ(facts.cgroup_version, 2);
    ASSERT_TRUE(facts.quota);
    EXPECT_DOUBLE_EQ(*facts.quota, 0.5);
    EXPECT_EQ(facts.cgroup, "/system.slice");
    EXPECT_DOUBLE_EQ(facts.throttled_seconds, 2.5);
    EXPECT_GE(facts.allowed, 1U);
}

TEST(DoctorCores, ReadTheQuotaOfCgroupsVersionOne) {
    const FakeTree tree;
    tree.file("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/slurm/job_1:a\n0::/\n");
    tree.file("/sys/fs/cgroup/cpu/slurm/job_1:a/cpu.cfs_quota_us", "25000\n");
    tree.file("/sys/fs/cgroup/cpu/slurm/job_1:a/cpu.cfs_period_us", "100000\n");
    tree.file("/sys/fs/cgroup/cpu/slurm/job_1:a/cpu.stat", "nr_periods 9\nthrottled_time 1500000000\n");
    tree.file("/sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "-1\n");
    tree.file("/sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us", "100000\n");
    const CoreFacts facts = read_cores(tree.root());
    EXPECT_EQ(facts.cgroup_version, 1);
    ASSERT_TRUE(facts.quota);
    EXPECT_DOUBLE_EQ(*facts.quota, 0.25);
    EXPECT_EQ(facts.cgroup, "/slurm/job_1:a");
    EXPECT_DOUBLE_EQ(facts.throttled_seconds, 1.5);
}

TEST(DoctorCores, MeasureThisMachinesMemory) {
    const CoreFacts facts = read_cores("");
    double best = 0;
    for (const double one : facts.memory_bandwidth) best = std::max(best, one);
    EXPECT_GT(best, 1e8);
    EXPECT_LT(best, 1e12);
}

std::vector<FolderFacts> healthy_folders() {
    FolderFacts work, shared;
    work.what = "working directory";
    work.path = "/home/alice";
    work.size = uint64_t{1} << 40;
    work.free = uint64_t{1} << 39;
    work.files = 1 << 20;
    work.files_free = 1 << 19;
    work.write_bandwidth = 1e9;
    shared.what = "shared memory";
    shared.path = "/dev/shm";
    shared.is_in_memory = true;
    shared.size = shared.free = uint64_t{16} << 30;
    return {work, shared};
}

TEST(DoctorDisks, FindsEachFaultAndNothingElse) {
    using Folders = std::vector<FolderFacts>;
    expect_found<Folders>(
        {
            {[](auto& f) { f[0].free = 0; }, "working directory", Level::fault, "/home/alice: full", "df -h"},
            {[](auto& f) { f[0].files_free = 0; }, "working directory", Level::fault,
             "none of 1048576 inodes", "df -i"},
            {[](auto& f) { f[0].files_free = 100; }, "working directory", Level::warning,
             "100 of 1048576 inodes", "df -i"},
            {[](auto& f) { f[0].free = 1 << 20; }, "working directory", Level::warning, "1 MiB of 1 TiB free",
             "df -h"},
            {[](auto& f) { f[0].write_bandwidth = 2e6; }, "working directory", Level::warning, "2 MB/s",
             "findmnt"},
            {[](auto& f) { f[0].is_writable = false; }, "working directory", Level::warning, "not writable",
             "--chdir"},
            {[](auto& f) { f[0].problem = "no answer within 4 s"; }, "working directory", Level::fault,
             "no answer", "umount"},
            {[](auto& f) { f[0].writing_problem = "a file cannot be written there: Disk quota exceeded"; },
             "working directory", Level::fault, "Disk quota exceeded", "quota"},
            {[](auto& f) { f[0].problem = "No such file or directory"; }, "working directory", Level::fault,
             "No such file", "mkdir -p /home/alice"},
            {[](auto& f) { f[1].free = 64 << 20; }, "shared memory", Level::warning, "64 MiB of 16 GiB",
             "remount"},
            {[](auto& f) { f[1].is_writable = false; }, "shared memory", Level::fault, "not writable",
             "chmod 1777"},
            {[](auto& f) { f[1].problem = "No such file or directory"; }, "shared memory", Level::fault,
             "No such file", "mount -t tmpfs"},
        },
        healthy_folders(), check_folders);
}

TEST(DoctorDisks, OnePercentOfALargeDiskIsMuch) {
    auto folders = healthy_folders();
    folders[0].size = uint64_t{1} << 50;
    folders[0].free = uint64_t{30} << 30;
    EXPECT_EQ(complaints(check_folders(folders)), std::vector<std::string>());
}

TEST(DoctorDisks, ReadsThisMachines) {
    for (const FolderFacts& one : read_folders()) {
        EXPECT_EQ(one.problem, "") << one.path;
        EXPECT_GT(one.size, 0U) << one.path;
        EXPECT_LE(one.free, one.size) << one.path;
    }
}

TEST(DoctorWords, OfSizes) {
    EXPECT_EQ(size_in_words(0), "0 bytes");
    EXPECT_EQ(size_in_words(65536), "64 KiB");
    EXPECT_EQ(size_in_words(uint64_t{3} << 29), "1.5 GiB");
    EXPECT_EQ(size_in_words(uint64_t{252} << 30), "252 GiB");
    EXPECT_EQ(size_in_words(UINT64_MAX), "16 EiB");
}

}  // namespace
}  // namespace dp::doctor
