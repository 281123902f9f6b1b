// SPDX-License-Identifier: Apache-2.0
#include "common/hostfile.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/read_file.hpp"

namespace dp {
namespace {

TEST(Hostfile, HasALineForEachNode) {
    EXPECT_EQ(hostfile_of("gpu[08-10],login", "4(x2),3,1"),
              "gpu08 slots=4\ngpu09 slots=4\ngpu10 slots=3\nlogin slots=1\n");
    EXPECT_EQ(hostfile_of("laptop", "4"), "laptop slots=4\n");
}

TEST(Hostfile, CountsAreWrittenAsSlurmDoes) {
    const std::pair<std::vector<uint32_t>, const char*> cases[] = {
        {{}, ""}, {{4}, "4"}, {{4, 4, 3}, "4(x2),3"}, {{1, 4, 4, 4, 1}, "1,4(x3),1"}};
    for (const auto& [counts, text] : cases) EXPECT_EQ(compress_counts(counts), text);
}

TEST(Hostfile, IsEmptyWhereNobodyCanTell) {
    const struct {
        const char* nodes;
        const char* tasks;
    } cases[] = {{"", ""},
                 {"a[", "1"},
                 {"a[1-2]", "4"},
                 {"a[1-2]", "4(x3)"},
                 {"a[1-2]", ""},
                 {"a[1-2]", "4(x0),4"},
                 {"a", "x"},
                 {"a", "4(x"},
                 {"a", "4(x1"},
                 {"a", "-1"},
                 {"a", "1(x99999999999)"}};
    for (const auto& c : cases) EXPECT_EQ(hostfile_of(c.nodes, c.tasks), "") << c.nodes << c.tasks;
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
