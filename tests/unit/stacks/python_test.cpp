// SPDX-License-Identifier: Apache-2.0
//
// With this machine's Python; tests/cluster/test_stacks.py has others.
#include "stacks/python.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "program.hpp"
#include "stacks/read_stacks.hpp"
#include "stacks/thread_snapshot.hpp"

namespace dp::stacks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Without what the innermost of them has called in C.
std::vector<Frame> python_frames(const ThreadStack& thread) {
    std::vector<Frame> frames = thread.frames;
    std::erase_if(frames, [](const Frame& one) { return one.line == 0; });
    return frames;
}

// Until the main thread sleeps in that function: what the script has said comes shortly before.
ProcessStacks stacks_in(pid_t pid, std::string_view function) {
    ProcessStacks found;
    for (int waited = 0; waited < 5000; ++waited) {
        const auto call = system_call_of(pid, pid);
        const bool sleeps = call && call->number != SYS_write;
        found = read_stacks(pid, {Threads::all});
        if (sleeps && !found.threads.empty()) {
            const auto frames = python_frames(found.threads[0]);
            if (!frames.empty() && frames.front().function == function) break;
        }
        usleep(1000);
    }
    return found;
}

TEST(StacksPython, TheCallsOfAThreadThatWaits) {
    const Script script(
        "import time\n"
        "class Lädt:\n"
        "    def batch(self, n):\n"
        "        if n:\n"
        "            return self.batch(n - 1)\n"
        "        time.sleep(\n"
        "            1000)\n"
        "def steps():\n"
        "    yield Lädt().batch(1)\n"
        "print('here', flush=True)\n"
        "for step in steps():\n"
        "    pass\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    const ProcessStacks found = stacks_in(python.pid(), "Lädt.batch");
    ASSERT_EQ(found.unknown, "");
    ASSERT_EQ(found.threads.size(), 1U);
    EXPECT_EQ(found.threads[0].thread, python.pid());
    EXPECT_EQ(found.threads[0].incomplete, "");
    // What Python itself has called in C, first.
    EXPECT_THAT(found.threads[0].frames.front().function, HasSubstr("nanosleep"));
    EXPECT_THAT(found.threads[0].frames.front().file, HasSubstr("libc.so.6"));
    EXPECT_THAT(python_frames(found.threads[0]),
                ElementsAre(Frame{"Lädt.batch", script.path, 6}, Frame{"Lädt.batch", script.path, 5},
                            Frame{"steps", script.path, 9}, Frame{"<module>", script.path, 11}));
}

TEST(StacksPython, EachThreadWithItsNumber) {
    const Script script(
        "import threading, time\n"
        "def loads():\n"
        "    print(threading.get_native_id(), flush=True)\n"
        "    time.sleep(1000)\n"
        "def works():\n"
        "    while True: sum(i * i for i in range(100))\n"
        "threading.Thread(target=loads).start()\n"
        "works()\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    const std::string number = python.wait();
    ProcessStacks found;
    for (int waited = 0; waited < 5000; ++waited) {
        found = read_stacks(python.pid(), {Threads::all});
        if (found.threads.size() == 2 && found.threads[0].frames.size() > 1 &&
            found.threads[0].frames.back().line == 8 && python_frames(found.threads[1]).size() > 3 &&
            python_frames(found.threads[1])[0].line == 4)
            break;
        usleep(1000);
    }
    ASSERT_EQ(found.threads.size(), 2U);
    EXPECT_EQ(found.threads[0].thread, python.pid());
    EXPECT_EQ(found.threads[0].frames.back(), (Frame{"<module>", script.path, 8}));
    EXPECT_EQ(std::to_string(found.threads[1].thread), number);
    EXPECT_EQ(python_frames(found.threads[1]).front(), (Frame{"loads", script.path, 4}));
}

// Its calls change while they are read. What is shown is what there was at one moment, or nothing.
TEST(StacksPython, ABusyThreadsCallsAreThoseOfOneMoment) {
    const Script script(
        "def leaf(n):\n"
        "    return n + 1\n"
        "def generate():\n"
        "    for i in range(100):\n"
        "        yield leaf(i)\n"
        "def consume():\n"
        "    for i in generate(): leaf(i)\n"
        "print(1, flush=True)\n"
        "while True: consume()\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    const std::string known[] = {"<module>", "<module> consume", "<module> consume leaf",
                                 "<module> consume generate", "<module> consume generate leaf"};
    int whole = 0;
    for (int i = 0; i < 1000; ++i) {
        const auto threads = read_stacks(python.pid(), {Threads::all}).threads;
        ASSERT_EQ(threads.size(), 1U);
        if (!threads[0].incomplete.empty()) continue;
        ++whole;
        std::string calls;
        const auto frames = python_frames(threads[0]);
        for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
            calls += (calls.empty() ? "" : " ") + frame->function;
        EXPECT_NE(std::find(std::begin(known), std::end(known), calls), std::end(known)) << calls;
    }
    EXPECT_GT(whole, 500);
}

// A rank whose main thread has ended is a rank all the same.
TEST(StacksPython, ThreadsThatOutliveTheMainOne) {
    const Script script(
        "import ctypes, threading, time\n"
        "def survives():\n"
        "    time.sleep(1000)\n"
        "threading.Thread(target=survives).start()\n"
        "print(1, flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    bool is_found = false;
    for (int waited = 0; waited < 5000 && !is_found; ++waited) {
        usleep(1000);
        std::ifstream maps("/proc/" + std::to_string(python.pid()) + "/maps");
        if (maps.get() != EOF) continue;  // it is still there
        for (const ThreadStack& thread : read_stacks(python.pid(), {Threads::all}).threads)
            is_found |= std::ranges::count(thread.frames, Frame{"survives", script.path, 3}) > 0;
    }
    EXPECT_TRUE(is_found);
}

TEST(StacksPython, ADeepRecursionIsCut) {
    const Script script(
        "import sys, time\n"
        "sys.setrecursionlimit(100000)\n"
        "def deep(n):\n"
        "    if n == 0: print('here', flush=True); time.sleep(1000)\n"
        "    deep(n - 1)\n"
        "deep(5000)\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    const ProcessStacks found = stacks_in(python.pid(), "deep");
    ASSERT_EQ(found.threads.size(), 1U);
    EXPECT_EQ(python_frames(found.threads[0]).size(), 4096U);
    EXPECT_THAT(found.threads[0].incomplete, HasSubstr("outer calls are not shown"));
}

// A file or a function may be called anything.
TEST(StacksPython, NothingThatChangesATerminalComesThrough) {
    const Script script(
        "import time\n"
        "exec(compile('def f():\\n\\n  time.sleep(1000)\\nprint(1, flush=True)\\nf()',"
        " '\\x1b[31m\\x9b\\ud800\\n', 'exec'), {'time': time})\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    const ProcessStacks found = stacks_in(python.pid(), "f");
    ASSERT_EQ(found.threads.size(), 1U);
    EXPECT_EQ(python_frames(found.threads[0]).front(), (Frame{"f", "?[31m???", 3}));
}

TEST(StacksPython, ATaskIsTheProgramThatItsShellHasStarted) {
    const Script script("import signal\nprint('here', flush=True)\nsignal.pause()\n");
    const std::string command = "(/usr/bin/python3 " + script.path + "; true); true";
    const Program shell({"/bin/sh", "-c", command.c_str()});
    ASSERT_EQ(shell.wait(), "here");
    ProcessStacks found;
    for (int waited = 0; waited < 5000; ++waited) {
        found = read_stacks_of_task(shell.pid(), {Threads::main});
        if (!found.threads.empty() && !python_frames(found.threads[0]).empty() &&
            python_frames(found.threads[0]).front().line == 3)
            break;
        usleep(1000);
    }
    ASSERT_EQ(found.unknown, "");
    ASSERT_FALSE(found.threads.empty());
    EXPECT_NE(found.pid, shell.pid());
    EXPECT_THAT(python_frames(found.threads[0]), ElementsAre(Frame{"<module>", script.path, 3}));
    kill(found.pid, SIGKILL);
}

}  // namespace
}  // namespace dp::stacks
