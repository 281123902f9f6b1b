// SPDX-License-Identifier: Apache-2.0
#include "dpctl/commands.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "../tiles/fake_tree.hpp"
#include "tiles/conf.hpp"

namespace dp {
namespace {

struct Said {
    int code = 0;
    std::string out;
    std::string err;
};

Said say(const TilesOptions& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Said said;
    said.code = show_tiles(options);
    said.out = testing::internal::GetCapturedStdout();
    said.err = testing::internal::GetCapturedStderr();
    return said;
}

class TilesVerb : public ::testing::Test {
 protected:
    void SetUp() override {
        setenv("SLURMD_NODENAME", "gpu01", 1);
        options.conf = tree.root() + "/tiles.conf";
        options.root = tree.root();
        options.nvml = "libno-such-library.so.1";
        options.scontrol = "false";
    }
    void TearDown() override { unsetenv("SLURMD_NODENAME"); }

    FakeTree tree;
    TilesOptions options;
};

TEST_F(TilesVerb, SaysWhatWasFound) {
    tree.nvidia("0000:17:00.0", 0);
    tree.nvidia("0000:65:00.0", 1);
    tree.pci("0000:17:00.0", 0, "0-15,32-47");
    const Said said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.err, "");
    EXPECT_EQ(said.out, "gpu01: 2 tiles on 2 devices of nvidia, a unit of gres gpu is 1 tile (found in " +
                            tree.root() + "/sys and " + tree.root() +
                            "/proc)\n"
                            "  TILES  DEVICE  NAME         FILE          NUMA  CPUS\n"
                            "  0      0       NVIDIA H200  /dev/nvidia0  0     0-15,32-47\n"
                            "  1      1       NVIDIA H200  /dev/nvidia1  -     -\n");
}

TEST_F(TilesVerb, SaysInWhatSlurmsNodeDisagrees) {
    tree.nvidia("0000:17:00.0", 0);
    options.scontrol = "echo NodeName=gpu01 Gres=gpu:4 NodeAddr=gpu01 #";
    const Said said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_NE(said.out.find("gpu01: 1 tile"), std::string::npos);
    EXPECT_NE(
        said.err.find("the 1 tile of the node make 1 unit of gres gpu, and Slurm's node has 4; correct"),
        std::string::npos)
        << said.err;
    options.scontrol = "echo NodeName=gpu01 Gres=gpu:1\\(S:0\\) NodeAddr=gpu01 #";
    EXPECT_EQ(say(options).err, "");
    options.scontrol = "echo NodeName=gpu01 'Gres=(null)' NodeAddr=gpu01 #";
    EXPECT_NE(say(options).err.find("Slurm's node has 0"), std::string::npos);
}

TEST_F(TilesVerb, SaysUuidsWhereNvidiasLibraryDoes) {
    tree.nvidia("0000:17:00.0", 0, "H200");
    tree.nvidia("0000:65:00.0", 1, "H200");
    tree.nvidia("0000:66:00.0", 2, "H200");
    tree.mig(0, 1, 0, 13);
    tree.mig(0, 2, 0, 22);
    options.nvml = DP_TEST_NVML;
    const Said said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out.substr(said.out.find('\n') + 1),
              "  TILES  DEVICE  NAME              FILE                           NUMA  CPUS  UUID\n"
              "  0      0       H200              /dev/nvidia1                   -     -     GPU-b\n"
              "  1      1       H200              /dev/nvidia2                   -     -     -\n"
              "  2      2       H200 MIG gi1/ci0  /dev/nvidia-caps/nvidia-cap13  -     -     MIG-1-0\n"
              "  3      3       H200 MIG gi2/ci0  /dev/nvidia-caps/nvidia-cap22  -     -     MIG-2-0\n");
}

TEST_F(TilesVerb, SaysTheRestWhereTheLibraryFails) {
    tree.nvidia("0000:17:00.0", 0);
    options.nvml = DP_TEST_NVML_WITHOUT_DRIVER;
    const Said said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.err.find("dpctl: UUIDs stay unknown: "), 0u) << said.err;
    EXPECT_NE(said.out.find("/dev/nvidia0"), std::string::npos);
    EXPECT_EQ(said.out.find("UUID"), std::string::npos);
}

TEST_F(TilesVerb, ForMachines) {
    tree.file(
        "/tiles.conf",
        "nodes=gpu01 vendor=intel devices=2 tiles-per-device=2 numa=0,1 files=/dev/dri/renderD[128-129]\n");
    options.json = true;
    const Said said = say(options);
    EXPECT_EQ(said.code, 0);
    const auto json = nlohmann::json::parse(said.out);
    EXPECT_EQ(json["node"], "gpu01");
    EXPECT_EQ(json["vendor"], "intel");
    EXPECT_EQ(json["gres"], "gpu");
    EXPECT_EQ(json["tiles"], 4);
    EXPECT_EQ(json["tiles_per_device"], 2);
    EXPECT_EQ(json["tiles_per_unit"], 2);
    EXPECT_EQ(json["source"], tree.root() + "/tiles.conf line 1");
    ASSERT_EQ(json["devices"].size(), 2u);
    const auto second = nlohmann::json::parse(
        R"({"device": 1, "tiles": [2, 3], "name": "", "file": "/dev/dri/renderD129", "numa": 1, "cpus": [], "uuid": ""})");
    EXPECT_EQ(json["devices"][1], second);
}

TEST_F(TilesVerb, LooksUpTheCpusOfNumaNodesAndNamesThoseThatAreNotThere) {
    tree.file("/sys/devices/system/node/node0/cpulist", "0-3,8\n");
    tree.file("/sys/devices/system/node/node1/cpulist", "4-7\n");
    tree.file("/tiles.conf", "nodes=gpu01 vendor=intel devices=2 numa=0,1\n");
    Said said = say(options);
    EXPECT_EQ(said.err, "");
    EXPECT_EQ(said.out.substr(said.out.find('\n') + 1),
              "  TILES  DEVICE  NAME  FILE  NUMA  CPUS\n"
              "  0      0       -     -     0     0-3,8\n"
              "  1      1       -     -     1     4-7\n");
    tree.file("/tiles.conf", "nodes=gpu01 vendor=intel devices=3 numa=7,1,7 cpus=0-1/2-3/0-1\n");
    said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.err,
              "dpctl: " + tree.root() +
                  "/tiles.conf line 1: numa= names NUMA node 7, and this machine has 0-1; correct it, "
                  "or ranks are not bound near it\n");
    EXPECT_NE(said.out.find("1     2-3"), std::string::npos) << said.out;  // as written
    options.node = "gpu01";                                                // as another might be
    EXPECT_EQ(say(options).err, "");
}

TEST_F(TilesVerb, OfAnotherNodeSaysOnlyWhatIsWritten) {
    tree.nvidia("0000:17:00.0", 0);
    tree.file("/tiles.conf",
              "nodes=sn[1-2] vendor=sambanova devices=8 tiles-per-device=8 tiles-per-unit=64\n");
    options.node = "sn2";
    Said said = say(options);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out.find("sn2: 64 tiles on 8 devices of sambanova, a unit of gres rdu is 64 tiles ("), 0u)
        << said.out;
    EXPECT_NE(said.out.find("\n  56-63  7       -     -     -     -\n"), std::string::npos) << said.out;
    options.node = "gpu02";
    said = say(options);
    EXPECT_EQ(said.code, 1);
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(said.err,
              "dpctl: " + options.conf +
                  " says nothing about node gpu02; write a line for it, see tiles.conf(5), or ask on "
                  "that node, where its devices are\n");
}

TEST_F(TilesVerb, SaysWhereItHasLookedInVain) {
    const Said said = say(options);
    EXPECT_EQ(said.code, 1);
    EXPECT_EQ(said.err.find("dpctl: no tiles are known of node gpu01: " + options.conf +
                            " does not name it, and /sys and /proc show no accelerator"),
              0u)
        << said.err;
}

TEST_F(TilesVerb, AMistakeInTilesConfIsNamedAlsoWhereDevicesWouldBeFound) {
    tree.nvidia("0000:17:00.0", 0);
    tree.file("/tiles.conf", "\nnodes=elsewhere vendor=cerebras devices=1\n");
    const Said said = say(options);
    EXPECT_EQ(said.code, 2);
    EXPECT_EQ(said.out, "");
    EXPECT_EQ(said.err, "dpctl: " + options.conf +
                            " line 2: vendor=cerebras: give one of sambanova, intel, nvidia, amd\n");
}

}  // namespace
}  // namespace dp
