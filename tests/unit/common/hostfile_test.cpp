// SPDX-License-Identifier: Apache-2.0
#include "common/hostfile.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/read_file.hpp"

namespace dp {
namespace {

TEST(Hostfile, HasALineForEachNode) {
    EXPECT_EQ(hostfile_of("gpu[08-10],login", "4(x2),3,1", 4),
              "gpu08 slots=4\ngpu09 slots=4\ngpu10 slots=3\nlogin slots=1\n");
    EXPECT_EQ(hostfile_of("gpu[1-3]", "8(x3)", 2), "gpu1 slots=8\ngpu2 slots=8\n") << "the last is a spare";
    EXPECT_EQ(hostfile_of("laptop", "4", 1), "laptop slots=4\n");
}

TEST(Hostfile, IsEmptyWhereNobodyCanTell) {
    const struct {
        const char* nodes;
        const char* tasks;
        uint32_t first;
    } cases[] = {
        {"", "", 0},       {"a[", "1", 1},           {"a[1-2]", "4", 2}, {"a[1-2]", "4(x3)", 2},
        {"a[1-2]", "", 2}, {"a[1-2]", "4(x0),4", 2}, {"a", "x", 1},      {"a", "4(x", 1},
        {"a", "4(x1", 1},  {"a", "-1", 1},           {"a", "1", 2},      {"a", "1(x99999999999)", 1}};
    for (const auto& c : cases) EXPECT_EQ(hostfile_of(c.nodes, c.tasks, c.first), "") << c.nodes << c.tasks;
}

TEST(Hostfile, IsReadByItsPath) {
    EXPECT_EQ(path_of_hostfile(make_hostfile("")), "");
    const int hostfile = make_hostfile("a slots=1\n");
    const std::string path = path_of_hostfile(hostfile);
    ASSERT_TRUE(path.starts_with("/proc/" + std::to_string(getpid()) + "/fd/")) << path;
    EXPECT_EQ(read_file(path), "a slots=1\n");
    EXPECT_NE(truncate(path.c_str(), 0), 0) << "nobody changes it";
    close(hostfile);
}

}  // namespace
}  // namespace dp
