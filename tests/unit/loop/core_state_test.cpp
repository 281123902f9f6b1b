// SPDX-License-Identifier: Apache-2.0
#include "loop/core_state.hpp"

#include <gtest/gtest.h>

#include "../tiles/fake_tree.hpp"

namespace dp {
namespace {

TEST(CoreState, IsReadFromSys) {
    const FakeTree tree;
    EXPECT_EQ(read_core(3, true, tree.root()), (CoreState{3, {}, {}, {}, {}}));
    const std::string core = "/sys/devices/system/cpu/cpu3/";
    tree.file(core + "thermal_throttle/core_throttle_count", "4\n");
    tree.file(core + "thermal_throttle/package_throttle_count", "5\n");
    tree.file(core + "cpufreq/scaling_cur_freq", "1200000\n");
    tree.file(core + "cpufreq/cpuinfo_max_freq", "4800000\n");
    tree.file(core + "cache/index3/id", "1\n");
    EXPECT_EQ(read_core(3, true, tree.root()), (CoreState{3, 1, 9, 0.75, {}})) << "resctrl is not mounted";
    EXPECT_EQ(read_core(3, false, tree.root()), (CoreState{3, 1, 9, {}, {}}));
    tree.file("/sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "7\n");
    tree.file("/sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "123456789012\n");
    EXPECT_EQ(read_core(3, true, tree.root()).memory_bytes, 123456789012);
    tree.file("/sys/fs/resctrl/batch/mon_data/mon_L3_01/mbm_total_bytes", "1000\n");
    EXPECT_EQ(read_core(3, true, tree.root()).memory_bytes, 123456790012) << "of all groups";
    tree.file("/sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "Unavailable\n");
    tree.file(core + "cpufreq/scaling_cur_freq", "5000000\n");
    EXPECT_EQ(read_core(3, true, tree.root()), (CoreState{3, 1, 9, 0, {}})) << "a turbo above what is said";
    EXPECT_EQ(read_core(2, true, tree.root()), (CoreState{2, {}, {}, {}, {}}));
}

}  // namespace
}  // namespace dp
