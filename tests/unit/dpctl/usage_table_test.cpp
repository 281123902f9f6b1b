// SPDX-License-Identifier: Apache-2.0
#include "dpctl/usage_table.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct RankAt {
    uint32_t rank;
    std::string tiles;
    std::vector<int64_t> seconds;  // by phase; none: it tells none
    int32_t pid = 4711;
    std::string command = "trainer";
    std::optional<int64_t> cpu_seconds = {};
};

wire::NodeUsage& add_node(wire::StepUsage& usage, const std::string& host, int64_t seconds,
                          const std::vector<RankAt>& ranks) {
    auto& node = *usage.add_nodes();
    node.set_node_rank(static_cast<uint32_t>(usage.nodes_size() - 1));
    node.set_host(host);
    node.set_now_ns(seconds * kSecond);
    for (const RankAt& one : ranks) {
        auto& rank = *node.add_ranks();
        rank.set_rank(one.rank);
        rank.set_tiles(one.tiles);
        rank.set_pid(one.pid);
        rank.set_command(one.command);
        rank.set_state(wire::StepStatus::HELLO);
        if (one.cpu_seconds) rank.set_cpu_ns(*one.cpu_seconds * kSecond);
        for (const int64_t s : one.seconds) rank.add_phase_ns(s * kSecond);
        usage.set_world_size(usage.world_size() + 1);
    }
    return node;
}

// Ten seconds of two nodes, of which the second's clock is another.
wire::StepUsage before() {
    wire::StepUsage usage;
    add_node(usage, "node01", 100,
             {{0, "0-3", {0, 50, 0, 0, 0}, 4711, "trainer", 200}, {1, "4-5,7", {90, 0, 0, 0, 0}}});
    add_node(usage, "node02", 7, {{2, "", {}}, {3, "64", {1, 1, 1, 1, 1}, 4711, "trainer", 3}});
    return usage;
}
wire::StepUsage after() {
    wire::StepUsage usage;
    add_node(usage, "node01", 110,
             {{0, "0-3", {0, 57, 1, 2, 0}, 4711, "trainer", 240}, {1, "4-5,7", {100, 0, 0, 0, 0}}});
    add_node(usage, "node02", 17,
             {{2, "", {}, 815, "python3.11"}, {3, "64", {1, 1, 1, 6, 6}, 4711, "trainer", 8}});
    return usage;
}

UsageTable example(bool skip_idle = false) {
    UsageTable table = usage_between(before(), after(), skip_idle);
    table.step = "12.0";
    table.user = "alice";
    table.unix_time = 1700000000.25;
    return table;
}

TEST(UsageTable, ForPeopleHasALineARank) {
    EXPECT_EQ(usage_text(example()),
              "step 12.0: 4 ranks on 2 nodes, over 10.0 s\n"
              "HOST    TILE   %idle  %compute  %load  %comm  %chkpt   %cpu  RANK   PID  USER   COMMAND\n"
              "node01  0-3      0.0      70.0   10.0   20.0     0.0  400.0     0  4711  alice  trainer\n"
              "node01  4-5,7  100.0       0.0    0.0    0.0     0.0      -     1  4711  alice  trainer\n"
              "node02  -          -         -      -      -       -      -     2   815  alice  python3.11\n"
              "node02  64       0.0       0.0    0.0   50.0    50.0   50.0     3  4711  alice  trainer\n");
}

TEST(UsageTable, SaysHowMuchOfAStepIsARanksOwnWhereOneTells) {
    wire::StepUsage usage;
    auto& node = add_node(usage, "a", 1, {{0, "", {}}, {1, "", {}}});
    node.mutable_ranks(1)->set_own_step_ns(104'200'000);
    const UsageTable table = usage_between(usage, usage, false);
    EXPECT_NE(usage_text(table).find("  %cpu  OWN_MS  RANK"), std::string::npos);
    EXPECT_NE(usage_text(table).find("   -   104.2     1"), std::string::npos) << usage_text(table);
    const auto json = nlohmann::json::parse(usage_json(table));
    EXPECT_TRUE(json["ranks"][0]["own_step_seconds"].is_null());
    EXPECT_EQ(json["ranks"][1]["own_step_seconds"], 0.1042);
}

TEST(UsageTable, LeavesOutWhoWasIdleAllTheTimeWhereThatIsWanted) {
    const UsageTable table = example(true);
    std::vector<uint32_t> ranks;
    for (const auto& row : table.rows) ranks.push_back(row.rank.rank());
    EXPECT_EQ(ranks, (std::vector<uint32_t>{0, 2, 3})) << "of rank 2 nobody knows that it was";
}

TEST(UsageTable, SaysOfWhichNodesNothingIsKnown) {
    wire::StepUsage usage;
    add_node(usage, "node01", 1, {{0, "", {}}});
    for (uint32_t node : {2U, 3U})
        add_node(usage, "node0" + std::to_string(node), 0, {{2 * node, "", {}}, {2 * node + 1, "", {}}})
            .set_problem("no answer");
    add_node(usage, "", 0, {}).set_problem("not connected");
    usage.set_ending("rank 1 on node01 exited with code 3");
    UsageTable table = usage_between(usage, usage, false);
    table.step = "12.0";
    const std::string text = usage_text(table);
    EXPECT_EQ(table.rows.size(), 1u);
    EXPECT_NE(text.find("\nit is being ended: rank 1 on node01 exited with code 3\n"), std::string::npos);
    EXPECT_NE(text.find("\nnode[02-03] (ranks 4-7): no answer\nnode 3: not connected\n"), std::string::npos)
        << text;
    const auto json = nlohmann::json::parse(usage_json(table));
    EXPECT_EQ(json["not_measured"][1]["host"], "node03");
    EXPECT_EQ(json["not_measured"][1]["problem"], "no answer");
    EXPECT_EQ(json["ending"], "rank 1 on node01 exited with code 3");
}

TEST(UsageTable, SaysWhatIsWithRanksThatDoNotRun) {
    wire::StepUsage usage;
    auto& node = add_node(usage, "a", 1, {{0, "", {}}, {1, "", {}, 0, ""}, {2, "", {}, 0, ""}});
    node.mutable_ranks(0)->set_stopped(true);
    node.mutable_ranks(1)->set_state(wire::StepStatus::EXITED);
    node.mutable_ranks(2)->set_state(wire::StepStatus::NOT_STARTED);
    const std::string text = usage_text(usage_between(usage, usage, false));
    for (const char* words : {"trainer (stopped)\n", " -        (exited)\n", " -        (not started)\n"})
        EXPECT_NE(text.find(words), std::string::npos) << words << text;
}

// -> the percentages of one rank with these seconds before and after, "" where there are none.
std::string percent(const std::vector<int64_t>& was, const std::vector<int64_t>& is, int32_t pid = 4711) {
    wire::StepUsage first;
    wire::StepUsage second;
    add_node(first, "a", 1, {{0, "", was}});
    add_node(second, "a", 2, {{0, "", is, pid}});
    const auto row = usage_between(first, second, false).rows.at(0);
    std::string out;
    for (size_t i = 0; row.percent && i < kPhases; ++i)
        out += (i ? " " : "") + std::to_string(static_cast<int>((*row.percent)[i]));
    return out;
}

TEST(UsageTable, PercentIsOfOneProgramsTimeOnly) {
    EXPECT_EQ(percent({0, 0, 0, 0, 0}, {1, 1, 2, 0, 0}), "25 25 50 0 0");
    EXPECT_EQ(percent({}, {1, 1, 2, 0, 0}), "") << "it began meanwhile";
    EXPECT_EQ(percent({1, 1, 2, 0, 0}, {}), "") << "it ended meanwhile";
    EXPECT_EQ(percent({5, 0, 0, 0, 0}, {4, 9, 0, 0, 0}), "") << "the task's next program";
    EXPECT_EQ(percent({0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, 815), "") << "the same";
    EXPECT_EQ(percent({1, 1, 2, 0, 0}, {1, 1, 2, 0, 0}), "") << "no time has passed";
    EXPECT_EQ(percent({INT64_MAX / kSecond, 0, 0, 0, 0}, {INT64_MAX / kSecond, 0, 0, 0, 1}), "0 0 0 0 100");
}

TEST(UsageTable, CpuTimeIsOfOneProcessOnly) {
    const auto between = [](RankAt was, RankAt is) {
        wire::StepUsage first;
        wire::StepUsage second;
        add_node(first, "a", 1, {std::move(was)});
        add_node(second, "a", 3, {std::move(is)});
        return usage_between(first, second, false).rows.at(0).cpu_percent;
    };
    const RankAt before{0, "", {}, 4711, "trainer", 5};
    EXPECT_EQ(between(before, {0, "", {}, 4711, "trainer", 8}), 150.0);
    EXPECT_EQ(between(before, {0, "", {}, 815, "trainer", 8}), std::nullopt) << "another process";
    EXPECT_EQ(between(before, {0, "", {}, 4711, "trainer", 4}), std::nullopt) << "the same number again";
    EXPECT_EQ(between(before, {0, "", {}, 4711}), std::nullopt) << "it is gone";
    EXPECT_EQ(between({0, "", {}, 4711}, {0, "", {}, 4711, "trainer", 8}), std::nullopt);
}

TEST(UsageTable, ForMachinesHasALineATile) {
    EXPECT_EQ(usage_csv_titles(),
              "time,host,tile,idle,compute,load,communication,checkpoint,rank,pid,user,command,"
              "gpu_percent,gpu_memory_used,gpu_memory_total,cpu_percent\n");
    EXPECT_EQ(usage_csv(example(true)),
              "1700000000.250,node01,0,0.0,70.0,10.0,20.0,0.0,0,4711,alice,trainer,,,,400.0\n"
              "1700000000.250,node01,1,0.0,70.0,10.0,20.0,0.0,0,4711,alice,trainer,,,,400.0\n"
              "1700000000.250,node01,2,0.0,70.0,10.0,20.0,0.0,0,4711,alice,trainer,,,,400.0\n"
              "1700000000.250,node01,3,0.0,70.0,10.0,20.0,0.0,0,4711,alice,trainer,,,,400.0\n"
              "1700000000.250,node02,,,,,,,2,815,alice,python3.11,,,,\n"
              "1700000000.250,node02,64,0.0,0.0,0.0,50.0,50.0,3,4711,alice,trainer,,,,50.0\n");
    UsageTable odd = example();
    odd.rows.resize(1);
    odd.rows[0].rank.set_tiles("all,\"of\" them");
    odd.rows[0].rank.set_command("a,b");
    EXPECT_EQ(usage_csv(odd),
              "1700000000.250,node01,\"all,\"\"of\"\" "
              "them\",0.0,70.0,10.0,20.0,0.0,0,4711,alice,\"a,b\",,,,400.0\n");
}

TEST(UsageTable, ForProgramsIsALineOfJson) {
    const std::string line = usage_json(example());
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], "12.0");
    EXPECT_EQ(json["time"], 1700000000.25);
    EXPECT_EQ(json["seconds"], 10.0);
    EXPECT_EQ(json["world_size"], 4);
    const auto& first = json["ranks"][0];
    EXPECT_EQ(first["host"], "node01");
    EXPECT_EQ(first["tiles"], (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(first["state"], "hello");
    EXPECT_EQ(first["user"], "alice");
    EXPECT_EQ(first["percent"]["compute"], 70.0);
    EXPECT_EQ(first["total_seconds"]["compute"], 57.0);
    EXPECT_EQ(first["cpu_percent"], 400.0);
    EXPECT_TRUE(json["ranks"][1]["cpu_percent"].is_null());
    EXPECT_EQ(json["ranks"][1]["tiles"], (std::vector<int>{4, 5, 7}));
    EXPECT_TRUE(json["ranks"][2]["percent"].is_null());
    EXPECT_TRUE(json["ranks"][2]["total_seconds"].is_null());
}

wire::NodeUsage::Gpu gpu(std::optional<uint32_t> busy, uint64_t used, uint64_t total) {
    wire::NodeUsage::Gpu out;
    if (busy) out.set_busy_percent(*busy);
    out.set_memory_used(used);
    out.set_memory_total(total);
    return out;
}

TEST(UsageTable, TellsOfTheGpusThatAreKnown) {
    constexpr uint64_t kGiB = uint64_t{1} << 30;
    UsageTable table = example();
    table.gpus["node01"] = {
        {4, gpu(80, 2 * kGiB, 80 * kGiB)}, {5, gpu(40, kGiB, 80 * kGiB)}, {0, gpu({}, kGiB, 10 * kGiB)}};
    const std::string text = usage_text(table);
    EXPECT_NE(text.find("%chkpt   %cpu  %gpu     GPU_MEM  RANK"), std::string::npos) << text;
    EXPECT_NE(text.find("  60.0  3.0/160.0G     1  4711"), std::string::npos) << text;
    EXPECT_NE(text.find("   -   1.0/10.0G     0  4711"), std::string::npos) << text;
    EXPECT_NE(text.find("   -           -     3  4711"), std::string::npos)
        << "of another node nothing is known: " << text;
    const std::string csv = usage_csv(table);
    EXPECT_NE(csv.find(",4,100.0,0.0,0.0,0.0,0.0,1,4711,alice,trainer,80,2147483648,85899345920,\n"),
              std::string::npos)
        << csv;
    EXPECT_NE(csv.find(",7,100.0,0.0,0.0,0.0,0.0,1,4711,alice,trainer,,,,\n"), std::string::npos) << csv;
    const auto json = nlohmann::json::parse(usage_json(table));
    EXPECT_EQ(json["ranks"][1]["gpus"].size(), 2u);
    EXPECT_EQ(json["ranks"][1]["gpus"][0]["busy_percent"], 80);
    EXPECT_TRUE(json["ranks"][0]["gpus"][0]["busy_percent"].is_null());
    EXPECT_TRUE(json["ranks"][3]["gpus"].empty());
}

TEST(UsageTable, IsCutToTheTerminal) {
    EXPECT_EQ(fit_screen("12345\nabc\n", 24, 80), "12345\nabc\n");
    EXPECT_EQ(fit_screen("12345\nabc\n", 3, 4), "1234\nabc\n");
    EXPECT_EQ(fit_screen("1\n2\n3\n4\n5\n", 4, 80), "1\n2\n... 3 more lines\n");
    EXPECT_EQ(fit_screen("1\n2\n3\n", 1, 5), "... 3\n");
    EXPECT_EQ(fit_screen("", 24, 80), "");
}

}  // namespace
}  // namespace dp
