// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dpctl/commands.hpp"

namespace dp {
namespace {

using stacks::Frame;
using stacks::ProcessStacks;
using stacks::ThreadStack;

const ThreadStack kReduces{
    11, {{"all_reduce", "/lib/torch/distributed_c10d.py", 2501}, {"<module>", "train.py", 40}}, ""};
const ThreadStack kLoads{12, {{"load_batch", "/home/a/train.py", 88}}, "outer calls are not shown"};
const ThreadStack kHasNone{13, {}, ""};

TEST(DpctlStacks, ThoseThatAreAlikeAreShownOnce) {
    const std::vector<ProcessStacks> processes = {
        {7, {kLoads, kHasNone}, ""},
        {8, {kReduces}, ""},
        {9, {}, "there is no process 9"},
        {10, {ThreadStack{10, kReduces.frames, ""}, kHasNone}, ""},
    };
    EXPECT_EQ(stacks_text(processes, false),
              "2 processes (8, 10): all_reduce (distributed_c10d.py:2501)\n"
              "    all_reduce (/lib/torch/distributed_c10d.py:2501)\n"
              "    <module> (train.py:40)\n"
              "process 7: load_batch (train.py:88)\n"
              "    load_batch (/home/a/train.py:88)\n"
              "    (outer calls are not shown)\n");
    EXPECT_EQ(stacks_text(processes, true),
              "process 7: load_batch (train.py:88)\n"
              "    load_batch (/home/a/train.py:88)\n"
              "    (outer calls are not shown)\n"
              "  and thread 13: no Python code\n"
              "process 8: all_reduce (distributed_c10d.py:2501)\n"
              "    all_reduce (/lib/torch/distributed_c10d.py:2501)\n"
              "    <module> (train.py:40)\n"
              "process 10: all_reduce (distributed_c10d.py:2501)\n"
              "    all_reduce (/lib/torch/distributed_c10d.py:2501)\n"
              "    <module> (train.py:40)\n"
              "  and thread 13: no Python code\n");
}

// A library's function tells less than who has called it.
TEST(DpctlStacks, TheFirstLineIsOfPythonOrHasALine) {
    const Frame poll{"poll", "/lib/libc.so.6", 0}, progress{"opal_progress", "opal_progress.c", 231},
        load{"load_batch", "/home/a/train.py", 88};
    const auto first_line = [](std::vector<Frame> frames) {
        const std::string text = stacks_text({{7, {{7, std::move(frames), ""}}, ""}}, false);
        return text.substr(0, text.find('\n'));
    };
    EXPECT_EQ(first_line({poll, progress, load}), "process 7: load_batch (train.py:88)");
    EXPECT_EQ(first_line({poll, progress}), "process 7: opal_progress (opal_progress.c:231)");
    EXPECT_EQ(first_line({poll}), "process 7: poll (libc.so.6)");
}

TEST(DpctlStacks, TheRanksOfAStepThatAreAlikeAreShownOnce) {
    wire::StepStacks step;
    auto& first = *step.add_nodes();
    first.set_host("node01");
    auto& second = *step.add_nodes();
    second.set_host("node02");
    step.add_nodes()->set_host("node03");
    step.mutable_nodes(2)->set_problem("no answer");
    const auto add = [](wire::NodeStacks& node, uint32_t rank, const ThreadStack& stack) {
        *node.add_ranks() = message_of({static_cast<pid_t>(100 + rank), {stack, kHasNone}, ""}, true);
        node.mutable_ranks(node.ranks_size() - 1)->set_rank(rank);
    };
    add(second, 2, kReduces);
    add(second, 3, kLoads);
    add(first, 0, kReduces);
    auto& unknown = *first.add_ranks();
    unknown.set_rank(1);
    unknown.set_unknown("process 9 runs no\nPython");
    EXPECT_EQ(stacks_text(step, false),
              "2 ranks (0,2): all_reduce (distributed_c10d.py:2501)\n"
              "    all_reduce (/lib/torch/distributed_c10d.py:2501)\n"
              "    <module> (train.py:40)\n"
              "rank 3 on node02: load_batch (train.py:88)\n"
              "    load_batch (/home/a/train.py:88)\n"
              "    (outer calls are not shown)\n");
    EXPECT_EQ(not_known(step),
              (std::vector<std::string>{"rank 1 on node01: process 9 runs no?Python", "node03: no answer"}));
    EXPECT_NE(stacks_json(step).find("\"rank\": 3,\n    \"host\": \"node02\",\n    \"pid\": 103,"),
              std::string::npos)
        << stacks_json(step);
    EXPECT_EQ(message_of({7, {kLoads, kHasNone}, ""}, false).threads_size(), 1);
    first.mutable_ranks(1)->set_unknown("b\u00fccher \x1b[31m\u009b7m\x7f");
    EXPECT_EQ(not_known(step).front(), "rank 1 on node01: b\u00fccher ?[31m?7m?");
}

TEST(DpctlStacks, ANodeTellsTheInnerCallsOfADeepRecursion) {
    ThreadStack deep{1, {}, "it goes on"};
    for (uint32_t line = 0; line < 500; ++line) deep.frames.push_back({"r", "r.py", line});
    const auto message = message_of({1, {deep}, ""}, false);
    ASSERT_EQ(message.threads(0).frames_size(), 200);
    EXPECT_EQ(message.threads(0).frames(0).line(), 0u);
    EXPECT_EQ(message.threads(0).incomplete(), "300 outer calls are not shown");
}

TEST(DpctlStacks, EqualThreadsAndEqualCallsAreShownOnce) {
    const ThreadStack waits{0, {{"wait", "threading.py", 320}}, ""};
    const auto with_number = [](ThreadStack stack, pid_t number) {
        stack.thread = number;
        return stack;
    };
    const ThreadStack deep{
        7, {{"r", "r.py", 3}, {"r", "r.py", 3}, {"r", "r.py", 3}, {"<module>", "r.py", 9}}, ""};
    const std::vector<ThreadStack> threads = {deep, with_number(waits, 8), kHasNone, with_number(waits, 9)};
    const std::string calls =
        "    r (r.py:3), 3 times\n"
        "    <module> (r.py:9)\n";
    EXPECT_EQ(stacks_text({{7, threads, ""}}, true), "process 7: r (r.py:3)\n" + calls +
                                                         "  and threads 8, 9: wait (threading.py:320)\n"
                                                         "    wait (threading.py:320)\n"
                                                         "  and thread 13: no Python code\n");
    EXPECT_EQ(stacks_text({{7, threads, ""}, {17, threads, ""}}, true),
              "2 processes (7, 17): r (r.py:3)\n" + calls +
                  "  and 2 threads: wait (threading.py:320)\n"
                  "    wait (threading.py:320)\n"
                  "  and 1 thread: no Python code\n");
}

TEST(DpctlStacks, ForMachines) {
    EXPECT_EQ(stacks_json({{7, {kLoads}, ""}, {9, {}, "there is no process 9"}}),
              R"([
  {
    "pid": 7,
    "threads": [
      {
        "thread": 12,
        "frames": [
          {
            "function": "load_batch",
            "file": "/home/a/train.py",
            "line": 88
          }
        ],
        "incomplete": "outer calls are not shown"
      }
    ]
  },
  {
    "pid": 9,
    "unknown": "there is no process 9",
    "threads": []
  }
]
)");
}

}  // namespace
}  // namespace dp
