// SPDX-License-Identifier: Apache-2.0
#include "common/nccl_debug.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"

namespace dp {
namespace {

TEST(NcclDebug, EachRankHasAFileOfItsOwn) {
    const RankOfStep rank = {12, 3, 5, 0, "node02", "/home/alice"};
    const struct {
        const char* wish;
        const char* file;
    } cases[] = {
        {"on", "/home/alice/nccl-12.3.5.log"},
        {"nccl.log", "/home/alice/nccl.log.5"},
        {"/scratch/%j/%N-%t.txt", "/scratch/12/node02-5.txt"},
        {"/scratch/%s-100%%-%t", "/scratch/3-100%-5"},
        {"/scratch/%h%", "/scratch/%h%.5"},
    };
    for (const auto& c : cases) EXPECT_EQ(nccl_debug_file({c.wish}, rank), c.file);
    RankOfStep later = rank;
    later.generation = 2;
    EXPECT_EQ(nccl_debug_file({"on"}, later), "/home/alice/nccl-12.3.5.log.generation2");
    EXPECT_EQ(for_nccl("/scratch/100%-5"), "/scratch/100%%-5");
}

TEST(NcclDebug, ThereIsNoFileWhereNoneCanBeMade) {
    const auto usable = [](const char* wish, const std::string& folder) {
        std::vector<std::string> warnings;
        const std::string file = usable_nccl_debug_file({wish}, {1, 0, 5, 0, "node02", folder}, warnings);
        return file + join(warnings);
    };
    const std::string folder = testing::TempDir();
    EXPECT_EQ(usable("nccl", folder), folder + "/nccl.5");
    EXPECT_EQ(usable("nccl", ""),
              "NCCL writes no files on node02 (--dp-nccl-debug): the working directory is gone");
    EXPECT_EQ(usable("/nonexistent/nccl", folder),
              "NCCL writes no files on node02 (--dp-nccl-debug): /nonexistent/: No such file or directory");
}

TEST(NcclDebug, TheLastWarningIsFound) {
    const std::string text =
        "node01:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
        "\n[2026-11-28 04:00:00] node01:7:9 [0] transport/net_ib.cc:90 NCCL WARN NET/IB : first\n"
        "node01:7:9 [0] NCCL INFO transport/net_ib.cc:91 -> 6\n"
        "\n[2026-11-28 04:00:01] node01:7:9 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection "
        "closed by "
        "remote peer node02<3>\n"
        "node01:7:9 [0] NCCL INFO misc/socket.cc:57 -> 6";
    EXPECT_EQ(last_nccl_warning(text),
              "[2026-11-28 04:00:01] socketProgress: Connection closed by remote peer node02<3>");
    EXPECT_EQ(last_nccl_warning("a\nnode01:7:9 [0] x.cc:1 NCCL WARN without [a] time"), "without [a] time");
    EXPECT_EQ(last_nccl_warning("[cut NCCL WARN off"), "off");
    EXPECT_EQ(last_nccl_warning("NCCL WARN [late]"), "[late]");
    EXPECT_EQ(last_nccl_warning("x NCCL WARN cut"), "cut");
    EXPECT_EQ(last_nccl_warning("x NCCL INFO fine\n"), "");
    EXPECT_EQ(last_nccl_warning(""), "");
}

}  // namespace
}  // namespace dp
