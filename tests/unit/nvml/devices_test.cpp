// SPDX-License-Identifier: Apache-2.0
//
// Against a made-up library, fake_nvml.c.
#include "nvml/devices.hpp"

#include <gtest/gtest.h>

#include <map>

#include "../tiles/fake_tree.hpp"
#include "nvml/library.hpp"

namespace dp {
namespace {

// The library's MIG instances as the driver shows them.
void make_instances(const FakeTree& tree) {
    tree.mig(0, 1, 0, 13);
    tree.mig(0, 2, 0, 22);
}

TEST(Nvml, KnowsWhatThisProcessMayUseByItsFile) {
    const FakeTree tree;
    make_instances(tree);
    const auto devices = nvml_devices(tree.root(), DP_TEST_NVML);
    ASSERT_TRUE(devices) << devices.error().message;
    std::map<std::string, std::string> uuids;
    for (const auto& device : *devices) uuids[device.file] = device.uuid;
    const std::map<std::string, std::string> expected = {{"/dev/nvidia1", "GPU-b"},
                                                         {"/dev/nvidia-caps/nvidia-cap13", "MIG-1-0"},
                                                         {"/dev/nvidia-caps/nvidia-cap22", "MIG-2-0"}};
    EXPECT_EQ(uuids, expected);
}

TEST(Nvml, SaysHowBusyAGpuIsAndOfAnInstanceItsMemory) {
    const FakeTree tree;
    make_instances(tree);
    const auto devices = nvml_devices(tree.root(), DP_TEST_NVML);
    ASSERT_TRUE(devices) << devices.error().message;
    for (const auto& device : *devices) {
        ASSERT_TRUE(device.use) << device.file;
        const bool whole = device.file == "/dev/nvidia1";
        EXPECT_EQ(device.use->busy_percent, whole ? std::optional(87u) : std::nullopt) << device.file;
        EXPECT_EQ(device.use->memory_used, 5ull << 30);
        EXPECT_EQ(device.use->memory_total, (whole ? 141ull : 18ull) << 30);
        EXPECT_EQ(device.use->processes, whole ? std::vector<pid_t>({4711, 4712}) : std::vector<pid_t>());
        EXPECT_EQ(device.use->lost_bits, whole ? std::optional<uint64_t>(0) : std::nullopt);
        ASSERT_EQ(device.use->clock_lost.has_value(), whole);
        if (whole) {
            EXPECT_NEAR(*device.use->clock_lost, 1.0 / 3, 0.01);
        }
        const auto of_whole = [whole](uint32_t value) { return whole ? std::optional(value) : std::nullopt; };
        EXPECT_EQ(device.use->clock_reasons, of_whole(0x4));
        EXPECT_EQ(device.use->watts, of_whole(611)) << "rounded";
        EXPECT_EQ(device.use->celsius, of_whole(41));
        EXPECT_EQ(device.use->sm_mhz, of_whole(1320));
    }
}

TEST(Nvml, AGpuThatHasLittleToDoLosesNoClock) {
    EXPECT_EQ(clock_lost(87, 0, 990, 1980), 0.5);
    EXPECT_EQ(clock_lost(87, nvml::kTooHot, 2000, 1980), 0);
    EXPECT_EQ(clock_lost(20, 0, 990, 1980), std::nullopt);
    EXPECT_EQ(clock_lost(87, nvml::kIdle, 990, 1980), std::nullopt);
    EXPECT_EQ(clock_lost(87, 0, 990, 0), std::nullopt);
}

TEST(GpuUse, IsToldByTileOfTheDevicesThatMayBeUsed) {
    const FakeTree tree;
    make_instances(tree);
    const std::string conf = tree.root() + "/tiles.conf";
    tree.file("/tiles.conf",
              "nodes=gpu01 vendor=nvidia devices=2 tiles-per-device=2 files=/dev/nvidia[0-1]\n"
              "nodes=cpu01 vendor=intel devices=2 tiles-per-device=2\n");
    const std::string bus = "0000:18:00";  // of GPU 1 of the conf
    tree.file("/dev/kmsg", "4,1,1,-;NVRM: Xid (PCI:" + bus + "): 94, Contained\n4,2,1,-;NVRM: Xid (PCI:" +
                               bus + "): 79, GPU has fallen off the bus.\n4,3,1,-;NVRM: Xid (PCI:" + bus +
                               "): 13, Graphics Exception\n4,4,1,-;NVRM: Xid (PCI:0000:99:00): 48, DBE\n");
    const auto use_of = [&](const std::string& node, const std::string& library) {
        const auto gpus = GpuUse::open({node, conf}, tree.root(), library);
        EXPECT_TRUE(gpus) << gpus.error().message;
        EXPECT_EQ(gpus->is_there(), node == "gpu01" && library == DP_TEST_NVML);
        gpus->look();
        return gpus->look();
    };
    const auto usage = use_of("gpu01", DP_TEST_NVML);
    ASSERT_TRUE(usage) << usage.error().message;
    ASSERT_EQ(usage->gpus_size(), 2)
        << "GPU 0 is in MIG mode, and its instances are no devices of tiles.conf";
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(usage->gpus(i).tile(), static_cast<uint32_t>(2 + i));
        EXPECT_EQ(usage->gpus(i).busy_percent(), 87u);
        EXPECT_EQ(usage->gpus(i).memory_used(), 5ull << 30);
        EXPECT_EQ(usage->gpus(i).memory_total(), 141ull << 30);
        EXPECT_EQ(usage->gpus(i).pids_size(), 2);
        EXPECT_NEAR(usage->gpus(i).clock_lost(), 1.0 / 3, 0.01);
        EXPECT_TRUE(usage->gpus(i).has_is_slowed() && !usage->gpus(i).is_slowed());
        EXPECT_EQ(usage->gpus(i).clock_reasons(), 0x4u);
        EXPECT_EQ(usage->gpus(i).watts(), 611u);
        EXPECT_EQ(usage->gpus(i).celsius(), 41u);
        EXPECT_EQ(usage->gpus(i).sm_mhz(), 1320u);
        EXPECT_TRUE(usage->gpus(i).has_lost_bits());
        EXPECT_EQ(usage->gpus(i).xid_line(), 3u) << "the last one of hardware, of this GPU";
        EXPECT_EQ(usage->gpus(i).last_xid(), 79u);
    }
    const auto of_intel = use_of("cpu01", DP_TEST_NVML);
    ASSERT_TRUE(of_intel) << of_intel.error().message;
    EXPECT_EQ(of_intel->gpus_size(), 0);
    const auto without = use_of("gpu01", "libno-such-library.so.1");
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_EQ(without->gpus_size(), 0);
}

TEST(Nvml, AGpuThatIsLostIsNamedAndHidesNoOther) {
    const FakeTree tree;
    make_instances(tree);
    setenv("FAKE_NVML_LOST", "1", 1);
    std::vector<std::string> skipped;
    const auto devices =
        nvml_devices(tree.root(), DP_TEST_NVML, [&](const std::string& why) { skipped.push_back(why); });
    tree.file("/tiles.conf",
              "nodes=gpu01 vendor=nvidia devices=2 tiles-per-device=1 files=/dev/nvidia[0-1]\n");
    const auto gpus = GpuUse::open({"gpu01", tree.root() + "/tiles.conf"}, tree.root(), DP_TEST_NVML);
    ASSERT_TRUE(gpus) << gpus.error().message;
    const auto usage = gpus->look();
    unsetenv("FAKE_NVML_LOST");
    ASSERT_TRUE(devices) << devices.error().message;
    ASSERT_EQ(devices->size(), 1u);
    EXPECT_EQ(devices->front().uuid, "GPU-b");
    const std::vector<std::string> expected{"GPU 1: " DP_TEST_NVML
                                            ": nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)"};
    EXPECT_EQ(skipped, expected);
    ASSERT_TRUE(usage) << usage.error().message;
    EXPECT_EQ(usage->gpus_size(), 1);
    EXPECT_EQ(usage->problem(), expected.front());
}

TEST(Nvml, NoLibraryIsNoError) {
    const auto devices = nvml_devices("", "libno-such-library.so.1");
    ASSERT_TRUE(devices) << devices.error().message;
    EXPECT_TRUE(devices->empty());
}

TEST(Nvml, ALibraryOfAnotherKindIsNamed) {
    const auto devices = nvml_devices("", "libc.so.6");
    ASSERT_FALSE(devices);
    EXPECT_EQ(devices.error().message.find("libc.so.6 has no nvml"), 0u) << devices.error().message;
}

TEST(Nvml, SaysWhyItDoesNotBegin) {
    const auto devices = nvml_devices("", DP_TEST_NVML_WITHOUT_DRIVER);
    ASSERT_FALSE(devices);
    EXPECT_NE(devices.error().message.find(": nvmlInit_v2: Driver Not Loaded (9)"), std::string::npos)
        << devices.error().message;
}

}  // namespace
}  // namespace dp
