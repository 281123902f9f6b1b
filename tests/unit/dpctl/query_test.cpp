// SPDX-License-Identifier: Apache-2.0
#include "dpctl/query.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

TEST(Query, FindsTheSocketsThatAreListenedOn) {
    const char* text =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 41 @slurm-dp/12.0/5f\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 42 @slurm-dp/12.0/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 43 @slurm-dp/12.0/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 44 /run/slurm-dp/13.0/5f\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 45 @slurm-dp/short\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 46 @slurm-dp/13.2/61\n"
        "garbage";
    EXPECT_EQ(daemon_sockets(text),
              (std::vector<DaemonSocket>{{"slurm-dp/12.0/5f", "12.0"}, {"slurm-dp/13.2/61", "13.2"}}));
    EXPECT_TRUE(daemon_sockets("").empty());
}

TEST(Query, AJobStandsForItsSteps) {
    EXPECT_TRUE(is_step("123.0", "123"));
    EXPECT_TRUE(is_step("123.0", "123.0"));
    EXPECT_FALSE(is_step("123.0", "12"));
    EXPECT_FALSE(is_step("123.0", "123.1"));
    EXPECT_FALSE(is_step("12.0", "123"));
}

}  // namespace
}  // namespace dp
