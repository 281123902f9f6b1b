// SPDX-License-Identifier: Apache-2.0
//
// A node's accelerators as they are found in /sys and /proc, here in made-up ones.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "fake_tree.hpp"
#include "tiles/conf.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

using Cpus = std::vector<uint32_t>;

std::vector<TileDevice> found(const FakeTree& tree, const Vendor& vendor, uint32_t tiles_per_device = 1) {
    const auto inventory = found_inventory(tree.root());
    EXPECT_TRUE(inventory) << inventory.error().message;
    EXPECT_TRUE(inventory && *inventory) << "nothing was found";
    if (!inventory || !*inventory) return {};
    EXPECT_EQ((*inventory)->vendor, &vendor);
    EXPECT_EQ((*inventory)->source, "found in " + tree.root() + "/sys and " + tree.root() + "/proc");
    const TileLayout& layout = (*inventory)->layout;
    EXPECT_EQ(layout.gres, "gpu");
    EXPECT_EQ(layout.tiles_per_device, tiles_per_device);
    EXPECT_EQ(layout.tiles_per_unit, tiles_per_device);
    EXPECT_EQ(layout.tiles, (*inventory)->devices.size() * tiles_per_device);
    return (*inventory)->devices;
}

std::string refusal(const FakeTree& tree) {
    const auto inventory = found_inventory(tree.root());
    EXPECT_FALSE(inventory);
    return inventory ? "" : inventory.error().message;
}

std::vector<std::string> files(const std::vector<TileDevice>& devices) {
    std::vector<std::string> out;
    for (const auto& device : devices) out.push_back(device.file);
    return out;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Detect, NothingInAMachineWithoutAccelerators) {
    const FakeTree empty;
    const auto nothing = found_inventory(empty.root());
    ASSERT_TRUE(nothing) << nothing.error().message;
    EXPECT_FALSE(*nothing);

    // What a machine has whose drivers are loaded, but not for accelerators.
    const FakeTree tree;
    tree.folder("/proc/driver/nvidia/gpus");
    tree.folder("/sys/class/drm/card0-HDMI-A-1");
    tree.file("/sys/class/drm/version", "drm 1.1.0 20060810\n");
    tree.kfd(0, 0, 0, 0, "");
    const auto none = found_inventory(tree.root());
    ASSERT_TRUE(none) << none.error().message;
    EXPECT_FALSE(*none);
}

TEST(Detect, EightNvidiaGpusInTheOrderOfTheirFiles) {
    const FakeTree tree;
    // Minor numbers are not in the order of the bus, and 10 comes behind 9.
    const std::pair<const char*, uint32_t> gpus[] = {
        {"0000:9d:00.0", 9}, {"0000:18:00.0", 2}, {"0000:ab:00.0", 10}, {"0000:2a:00.0", 3},
        {"0000:3a:00.0", 0}, {"0000:5d:00.0", 1}, {"0000:ba:00.0", 5},  {"0000:db:00.0", 4}};
    for (const auto& [address, minor] : gpus) {
        tree.nvidia(address, minor);
        tree.pci(address, address[5] < '6' ? 0 : 1, address[5] < '6' ? "0-2,96" : "48-50,144");
    }
    const auto devices = found(tree, kNvidia);
    EXPECT_EQ(files(devices),
              (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3",
                                        "/dev/nvidia4", "/dev/nvidia5", "/dev/nvidia9", "/dev/nvidia10"}));
    ASSERT_EQ(devices.size(), 8u);
    const TileDevice third = {"NVIDIA H200", "/dev/nvidia2", 0, {0, 1, 2, 96}};
    EXPECT_EQ(devices[2], third);
    const TileDevice last = {"NVIDIA H200", "/dev/nvidia10", 1, {48, 49, 50, 144}};
    EXPECT_EQ(devices[7], last);
}

TEST(Detect, AMachineNeedNotSayWhatIsNear) {
    const FakeTree tree;
    tree.nvidia("0000:00:1e.0", 0, "Tesla T4");
    tree.pci("0000:00:1e.0", -1, "0-3");
    tree.nvidia("0000:00:1F.0", 1, "Tesla T4");  // sysfs writes addresses small
    tree.pci("0000:00:1f.0", 1, "");
    tree.nvidia("0000:01:00.0", 2, "");  // and here there is none
    const std::vector<TileDevice> expected = {{"Tesla T4", "/dev/nvidia0", std::nullopt, {0, 1, 2, 3}},
                                              {"Tesla T4", "/dev/nvidia1", 1, {}},
                                              {"", "/dev/nvidia2", std::nullopt, {}}};
    EXPECT_EQ(found(tree, kNvidia), expected);
}

TEST(Detect, AGpuThatTheDriverLeavesAloneDoesNotCount) {
    const FakeTree tree;
    tree.nvidia("0000:17:00.0", 0);
    tree.file("/proc/driver/nvidia/gpus/0000:18:00.0/information",
              "Model: \t\t NVIDIA H200\nDevice Minor: \t 255\nGPU Excluded:\t Yes\n");
    EXPECT_EQ(files(found(tree, kNvidia)), std::vector<std::string>{"/dev/nvidia0"});
}

TEST(Detect, MigInstancesStandForTheirGpuAndComeBehindWholeOnes) {
    const FakeTree tree;
    for (uint32_t minor = 0; minor < 3; ++minor) {
        const std::string address = "0000:1" + std::to_string(minor) + ":00.0";
        tree.nvidia(address, minor);
        tree.pci(address, static_cast<int>(minor), std::to_string(minor));
    }
    tree.mig(1, 11, 0, 102);
    tree.mig(1, 2, 1, 23);
    tree.mig(1, 2, 0, 22);
    tree.mig(0, 1, 0, 13);
    // In MIG mode without a compute instance: Slurm hands out the GPU.
    tree.file("/proc/driver/nvidia/capabilities/gpu2/mig/gi3/access", "DeviceFileMinor: 30\n");
    tree.file("/proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\n");
    const std::vector<TileDevice> expected = {
        {"NVIDIA H200", "/dev/nvidia2", 2, {2}},
        {"NVIDIA H200 MIG gi1/ci0", "/dev/nvidia-caps/nvidia-cap13", 0, {0}},
        {"NVIDIA H200 MIG gi2/ci0", "/dev/nvidia-caps/nvidia-cap22", 1, {1}},
        {"NVIDIA H200 MIG gi2/ci1", "/dev/nvidia-caps/nvidia-cap23", 1, {1}},
        {"NVIDIA H200 MIG gi11/ci0", "/dev/nvidia-caps/nvidia-cap102", 1, {1}}};
    EXPECT_EQ(found(tree, kNvidia), expected);
}

TEST(Detect, WhatNvidiasDriverDoesNotSayIsRefused) {
    const std::pair<std::string, std::string> cases[] = {
        {"",
         "gpus/0000:17:00.0/information does not say which /dev/nvidia* is this GPU's; write the node's "
         "devices into tiles.conf"},
        {"Model: H200\n", "does not say which /dev/nvidia*"},
        {"Device Minor: N/A\n", "does not say which /dev/nvidia*"},
        {"Device Minor: -1\n", "does not say which /dev/nvidia*"},
        {std::string(70000, 'x'), "information is longer than 64 KiB"}};
    for (const auto& [text, why] : cases) {
        const FakeTree tree;
        tree.file("/proc/driver/nvidia/gpus/0000:17:00.0/information", text);
        EXPECT_TRUE(contains(refusal(tree), why)) << refusal(tree);
    }
    const FakeTree mig;
    mig.nvidia("0000:17:00.0", 0);
    mig.file("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMode: 292\n");
    EXPECT_TRUE(contains(refusal(mig), "gi1/ci0/access does not say which of /dev/nvidia-caps"));
    const FakeTree cpus;
    cpus.nvidia("0000:17:00.0", 0);
    cpus.pci("0000:17:00.0", 0, "all");
    EXPECT_TRUE(contains(refusal(cpus), "0000:17:00.0/local_cpulist is not a list of CPUs: \"all\""));
}

TEST(Detect, IntelsStacksUnderEitherDriver) {
    const FakeTree tree;
    // i915; cards are not in the order of the bus. A text of the gt folder is no tile.
    const char* addresses[] = {"0000:9a:00.0", "0000:29:00.0", "10000:01:00.0", "0000:3a:00.0"};
    for (uint32_t i = 0; i < 4; ++i) {
        tree.intel(i + 1, addresses[i], 128 + i, i == 3 ? "0x030200" : "0x038000");
        tree.pci(addresses[i], i % 2 == 0 ? 1 : 0, std::to_string(i));
    }
    for (uint32_t card = 1; card <= 3; ++card)
        for (const char* gt : {"/gt/gt0/id", "/gt/gt1/id", "/gt/gt_act_freq_mhz"})
            tree.file("/sys/class/drm/card" + std::to_string(card) + gt, "0\n");
    // xe: two tiles, of which each has a GT for computing and one for media.
    for (const char* gt : {"tile0/gt0", "tile0/gt1", "tile1/gt2", "tile1/gt3"})
        tree.folder("/sys/devices/pci0000:00/0000:3a:00.0/" + std::string(gt));
    tree.folder("/sys/class/drm/card1-DP-1");
    // Another vendor's, as a server's for its console.
    tree.file("/sys/devices/pci0000:00/0000:02:00.0/vendor", "0x1a03\n");
    tree.file("/sys/devices/pci0000:00/0000:02:00.0/class", "0x030000\n");
    tree.link("/sys/class/drm/card0/device", "/sys/devices/pci0000:00/0000:02:00.0");
    const std::vector<TileDevice> expected = {{"", "/dev/dri/renderD129", 0, {1}},
                                              {"", "/dev/dri/renderD131", 0, {3}},
                                              {"", "/dev/dri/renderD128", 1, {0}},
                                              {"", "/dev/dri/renderD130", 1, {2}}};
    EXPECT_EQ(found(tree, kIntel, 2), expected);
}

TEST(Detect, AnIntelGpuWithoutStacksIsOneTile) {
    const FakeTree tree;
    tree.intel(0, "0000:3a:00.0", 128);
    EXPECT_EQ(files(found(tree, kIntel)), std::vector<std::string>{"/dev/dri/renderD128"});
}

TEST(Detect, IntelsGpusThatArePartOfAProcessorDoNotCount) {
    for (const char* pci_class : {"0x030000", "0x038000"}) {
        const FakeTree tree;
        tree.intel(0, "0000:00:02.0", 128, pci_class);
        const auto none = found_inventory(tree.root());
        ASSERT_TRUE(none) << none.error().message;
        EXPECT_FALSE(*none) << pci_class;
        // Nor do they hide what there is.
        tree.nvidia("0000:01:00.0", 0);
        EXPECT_EQ(found(tree, kNvidia).size(), 1u);
    }
}

TEST(Detect, IntelGpusOfDifferentSizesAreRefused) {
    const FakeTree tree;
    tree.intel(0, "0000:29:00.0", 128);
    tree.intel(1, "0000:3a:00.0", 129);
    tree.folder("/sys/class/drm/card1/gt/gt0");
    tree.folder("/sys/class/drm/card1/gt/gt1");
    EXPECT_EQ(refusal(tree),
              "Intel's GPU 0000:3a:00.0 has 2 tiles and 0000:29:00.0 has 1; write into tiles.conf what of "
              "this node is to be given to ranks");
}

TEST(Detect, AmdsGpusInTheOrderOfTheBus) {
    const FakeTree tree;
    tree.kfd(0, 0, 0, 0, "");  // processors
    tree.kfd(1, 0, 0, 0, "");
    tree.kfd(2, 1216, 0xc100, 136, "aldebaran");
    tree.kfd(3, 1216, 0x2900, 128, "");
    tree.kfd(10, 1216, 0x2908, 144, "aldebaran");
    tree.kfd(4, 1216, 0x0100, 152, "aldebaran", 1);
    tree.pci("0000:c1:00.0", 3, "48-49");
    tree.pci("0000:29:00.0", 0, "0-1");
    tree.pci("0000:29:01.0", 1, "2-3");
    const std::vector<TileDevice> expected = {{"", "/dev/dri/renderD128", 0, {0, 1}},
                                              {"aldebaran", "/dev/dri/renderD144", 1, {2, 3}},
                                              {"aldebaran", "/dev/dri/renderD136", 3, {48, 49}},
                                              {"aldebaran", "/dev/dri/renderD152", std::nullopt, {}}};
    EXPECT_EQ(found(tree, kAmd), expected);
}

TEST(Detect, EachPartitionOfAnAmdGpuIsADevice) {
    const FakeTree tree;
    tree.kfd(0, 0, 0, 0, "");
    // CPX: the number of the partition is in the function; the bus has function 0 alone.
    for (uint32_t partition = 0; partition < 8; ++partition) {
        tree.kfd(9 - partition, 152, 0x9500 | partition, 128 + partition);
        tree.kfd(10 + partition, 152, 0x0500 | partition, 160 + partition);
    }
    tree.pci("0000:95:00.0", 1, "48-51");
    tree.pci("0000:05:00.0", 0, "0-3");
    const auto devices = found(tree, kAmd);
    ASSERT_EQ(devices.size(), 16u);
    for (uint32_t i = 0; i < 16; ++i) {
        const TileDevice expected = {"gfx942", "/dev/dri/renderD" + std::to_string(i < 8 ? 160 + i : 120 + i),
                                     i < 8 ? 0 : 1, i < 8 ? Cpus{0, 1, 2, 3} : Cpus{48, 49, 50, 51}};
        EXPECT_EQ(devices[i], expected) << i;
    }
}

TEST(Detect, AnAmdGpuThatMayNotBeSeenIsNotPassedOver) {
    const FakeTree tree;
    tree.kfd(1, 152, 0x9500, 128);
    // What cannot be read: a folder in place of the file.
    tree.folder("/sys/class/kfd/kfd/topology/nodes/2/properties");
    const std::string why = refusal(tree);
    EXPECT_TRUE(
        contains(why, "cannot read " + tree.root() + "/sys/class/kfd/kfd/topology/nodes/2/properties"))
        << why;
    EXPECT_TRUE(contains(why, "hides some of the GPUs, they cannot be counted")) << why;
}

const std::string kRemedy = "; give a file there as tiles.conf(5) describes it, that every user may read";

TEST(Detect, ATilesConfThatCannotBeReadIsToldWithWhatToDo) {
    const FakeTree tree;
    const auto refused = read_inventory(tree.root(), "node01", tree.root());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "cannot read " + tree.root() + ": Is a directory" + kRemedy);
}

TEST(Detect, WhatTilesConfSaysOfTheNodeWins) {
    const FakeTree tree;
    tree.nvidia("0000:17:00.0", 0);
    tree.file("/tiles.conf", "nodes=n1 vendor=nvidia devices=4\n");
    const auto written = read_inventory(tree.root() + "/tiles.conf", "n1", tree.root());
    ASSERT_TRUE(written && *written);
    EXPECT_EQ((*written)->devices.size(), 4u);
    for (const char* conf : {"/tiles.conf", "/no-such-file"}) {
        const auto here = read_inventory(tree.root() + conf, "n2", tree.root());
        ASSERT_TRUE(here && *here);
        EXPECT_EQ((*here)->devices.size(), 1u);
    }
    tree.file("/tiles.conf", "nodes=n1\n");
    EXPECT_FALSE(read_inventory(tree.root() + "/tiles.conf", "n2", tree.root()));
    tree.file("/tiles.conf", std::string((4 << 20) + 1, '#'));
    const auto too_long = read_inventory(tree.root() + "/tiles.conf", "n2", tree.root());
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().message, tree.root() + "/tiles.conf is longer than 4 MiB" + kRemedy);
}

TEST(Sysfs, ListsOfCpus) {
    const std::pair<const char*, Cpus> good[] = {{"", {}},
                                                 {"\n", {}},
                                                 {"0\n", {0}},
                                                 {"0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}},
                                                 {"5,2-3,3", {2, 3, 5}}};
    for (const auto& [text, cpus] : good) EXPECT_EQ(parse_cpu_list(text), cpus) << text;
    for (const char* text :
         {"a", "1-", "-1", "3-2", "1,,2", "1,", "0-65536", "1 2", "0x1", "0-4294967295", "0-65535,0-65535"})
        EXPECT_FALSE(parse_cpu_list(text)) << text;
}

TEST(Sysfs, NothingIsWaitedFor) {
    const FakeTree tree;
    ASSERT_EQ(mkfifo((tree.root() + "/pipe").c_str(), 0600), 0);
    const auto text = read_text(tree.root() + "/pipe");
    ASSERT_TRUE(text && *text) << text.error().message;
    EXPECT_EQ(**text, "");
}

}  // namespace
}  // namespace dp
