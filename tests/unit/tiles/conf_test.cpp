// SPDX-License-Identifier: Apache-2.0
#include "tiles/conf.hpp"

#include <gtest/gtest.h>

#include "tiles/vendor.hpp"

namespace dp {
namespace {

constexpr const char* kExample = R"(# A site with three kinds of nodes.
nodes=sn30-[01-02] vendor=sambanova devices=8 tiles-per-device=8 tiles-per-unit=64

nodes=sn10-8 vendor=sambanova gres=rdu_tile devices=8 tiles-per-device=4 numa=0,0,0,0,1,1,1,1   # by the tile
	nodes=dawn-[001-256],dawn-login vendor=intel devices=2 tiles-per-device=2 numa=0,1 cpus=0-3,8/4-7 files=/dev/dri/renderD[128-129]
)";

TEST(TilesConf, SaysWhatANodeHas) {
    const auto sn30 = read_tiles_conf(kExample, "tiles.conf", "sn30-02");
    ASSERT_TRUE(sn30 && *sn30);
    EXPECT_EQ((*sn30)->vendor, &kSambanova);
    EXPECT_EQ((*sn30)->layout.gres, "rdu");
    EXPECT_EQ((*sn30)->layout.tiles, 64u);
    EXPECT_EQ((*sn30)->layout.tiles_per_device, 8u);
    EXPECT_EQ((*sn30)->layout.tiles_per_unit, 64u);
    EXPECT_EQ((*sn30)->devices, std::vector<TileDevice>(8));
    EXPECT_EQ((*sn30)->source, "tiles.conf line 2");

    const auto sn10 = read_tiles_conf(kExample, "tiles.conf", "sn10-8");
    ASSERT_TRUE(sn10 && *sn10);
    EXPECT_EQ((*sn10)->layout.gres, "rdu_tile");
    EXPECT_EQ((*sn10)->layout.tiles_per_unit, 1u);
    EXPECT_EQ((*sn10)->devices[3].numa, 0u);
    EXPECT_EQ((*sn10)->devices[4].numa, 1u);

    const auto dawn = read_tiles_conf(kExample, "tiles.conf", "dawn-256");
    ASSERT_TRUE(dawn && *dawn);
    EXPECT_EQ((*dawn)->layout.gres, "gpu");
    EXPECT_EQ((*dawn)->layout.tiles_per_unit, 2u);
    const std::vector<TileDevice> devices = {{"", "/dev/dri/renderD128", 0, {0, 1, 2, 3, 8}},
                                             {"", "/dev/dri/renderD129", 1, {4, 5, 6, 7}}};
    EXPECT_EQ((*dawn)->devices, devices);

    const auto other = read_tiles_conf(kExample, "tiles.conf", "login1");
    ASSERT_TRUE(other);
    EXPECT_FALSE(*other);
    EXPECT_TRUE(read_tiles_conf("", "tiles.conf", "n1"));
}

TEST(TilesConf, MistakesAreNamedWithTheirLine) {
    const std::pair<const char*, const char*> cases[] = {
        {"nodes=a vendor=intel devices=1 tile=2", "\"tile=2\" is not understood; there are nodes=, vendor="},
        {"nodes=a vendor=intel devices=1 devices=2", "devices= is given twice"},
        {"nodes=a vendor intel devices=1", "\"vendor\" is not understood"},
        {"vendor=intel devices=1", "nodes= is missing"},
        {"nodes=a[ vendor=intel devices=1", "nodes: malformed list"},
        {"nodes=a vendor=cerebras devices=1", "vendor=cerebras: give one of sambanova, intel, nvidia, amd"},
        {"nodes=a devices=1", "vendor=: give one of sambanova"},
        {"nodes=a vendor=intel", "devices=... is missing: give a number from 1 to 4096"},
        {"nodes=a vendor=amd devices=2 files=/dev/a,/dev/a", "files: /dev/a is given twice"},
        {"nodes=a vendor=amd devices=2 gres=gpu:a100", "gres=gpu:a100: give the name of a gres alone"},
        {"nodes=a vendor=amd devices=2 gres=g\xff", "gres=g?: give the name of a gres alone"},
        {"nodes=a vendor=nvidia devices=8 tiles-per-unit=2", "a unit of gres gpu is one device of nvidia"},
        {"nodes=a vendor=intel devices=0", "devices=0: give a number"},
        {"nodes=a vendor=intel devices=x", "devices=x: give a number"},
        {"nodes=a vendor=intel devices=65 tiles-per-device=64",
         "are 4160 tiles, and a node has at most 4096"},
        {"nodes=a vendor=intel devices=2 tiles-per-unit=3",
         "2 tiles do not make whole units of gres gpu with 3 tiles"},
        {"nodes=a vendor=intel devices=2 numa=0", "numa= lists 1 device, and devices= says 2"},
        {"nodes=a vendor=intel devices=2 numa=0,x", "\"x\" is not the number of a NUMA node"},
        {"nodes=a vendor=intel devices=2 cpus=0-3", "cpus= lists 1 device, and devices= says 2"},
        {"nodes=a vendor=intel devices=1 cpus=3-0", "is not a list of CPUs"},
        {"nodes=a vendor=intel devices=1 cpus=", "cpus= lists 0 devices"},
        {"nodes=a vendor=intel devices=1 files=/dev/a[0-1]", "files= lists 2 devices, and devices= says 1"},
        {"nodes=a vendor=intel devices=1 files=gpu0", "\"gpu0\" is not an absolute path"},
        {"nodes=[a] vendor=intel devices=1", "nodes: malformed list"},
        {"nodes=a vendor=intel devices=1\nnodes=b,a vendor=amd devices=1", "line 2: a is already in line 1"},
    };
    for (const auto& [text, why] : cases) {
        // A mistake in the line of another node counts, too: it is one file.
        for (const char* node : {"a", "elsewhere"}) {
            const auto read = read_tiles_conf(text, "/etc/slurm/tiles.conf", node);
            ASSERT_FALSE(read) << text;
            EXPECT_EQ(read.error().message.find("/etc/slurm/tiles.conf line "), 0u) << read.error().message;
            EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
        }
    }
}

}  // namespace
}  // namespace dp
