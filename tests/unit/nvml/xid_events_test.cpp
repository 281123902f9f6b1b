// SPDX-License-Identifier: Apache-2.0
#include "nvml/xid_events.hpp"

#include <gtest/gtest.h>

#include "../tiles/fake_tree.hpp"

namespace dp::nvml {
namespace {

TEST(XidEvents, AreLinesOfTheKernelsLog) {
    const FakeTree tree;
    EXPECT_EQ(kernel_log(tree.root()), std::nullopt);
    tree.file(
        "/dev/kmsg",
        "6,1,2,-;NVRM: loading\n"
        "4,1234,5678,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', GPU has fallen\n SUBSYSTEM=pci\n"
        "4,1235,5679,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, Contained\n"
        "4,1236,5680,-;NVRM: Xid (PCI:0000:17:00): none\n4,1237,5681,-;NVRM: Xid (PCI:0000:17:00\n");
    const auto log = kernel_log(tree.root());
    ASSERT_TRUE(log);
    const std::vector<XidEvent> expected = {
        {"0000:17:00", 79, 1235, "Xid (PCI:0000:17:00): 79, pid='<unknown>', GPU has fallen"},
        {"0000:3b:00", 94, 1236, "Xid (PCI:0000:3b:00 GPU-I:05): 94, Contained"}};
    EXPECT_EQ(xid_events(*log), expected);
}

TEST(XidEvents, ProgramsMistakesAreNotOfHardware) {
    EXPECT_TRUE(is_of_hardware({"", 79, 0, ""}));
    EXPECT_FALSE(is_of_hardware({"", 13, 0, ""}));
    EXPECT_FALSE(is_of_hardware({"", 31, 0, ""}));
}

}  // namespace
}  // namespace dp::nvml
