// SPDX-License-Identifier: Apache-2.0
#include "stacks/process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace dp::stacks {
namespace {

using testing::HasSubstr;

TEST(StacksProcess, ReadsTheMappedFilesAndNothingElse) {
    const auto maps = parse_maps(
        "55d0c8a2e000-55d0c8a9d000 r-xp 0001f000 fe:01 12345      /usr/bin/python3.11\n"
        "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n"
        "7f12d1c00000-7f12d1c28000 r--p 00000000 fe:01 99 /opt/my libs/libpython3.12.so.1.0 (deleted)\n"
        "7ffd0f5e1000-7ffd0f602000 rw-p 00000000 00:00 0                          [stack]\n"
        "nonsense\n");
    ASSERT_EQ(maps.size(), 2U);
    EXPECT_EQ(maps[0].begin, 0x55d0c8a2e000U);
    EXPECT_EQ(maps[0].offset, 0x1f000U);
    EXPECT_EQ(maps[0].path, "/usr/bin/python3.11");
    EXPECT_EQ(maps[1].path, "/opt/my libs/libpython3.12.so.1.0 (deleted)");
}

TEST(StacksProcess, AThreadsInnermostNumberCounts) {
    EXPECT_EQ(innermost_number("Name:\tx\nNSpid:\t4711\nNSpgid:\t1\n"), 4711);
    EXPECT_EQ(innermost_number("Name:\tx\nNSpid:\t4711\t12\t1\nNSpgid:\t1\n"), 1);
    EXPECT_EQ(innermost_number("Name:\tx\n"), std::nullopt);
    EXPECT_EQ(innermost_number(""), std::nullopt);
}

int known_number = 4711;

struct Child {
    pid_t pid = fork();
    ~Child() { end(); }
    void end() {
        if (pid <= 0) return;
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        pid = 0;
    }
};

TEST(StacksProcess, FindsAndReadsASymbolOfAnotherProcess) {
    Child made;
    const pid_t child = made.pid;
    ASSERT_GE(child, 0);
    if (child == 0) {
        known_number = 12;
        for (;;) pause();
    }
    const auto process = Process::open(child);
    ASSERT_TRUE(process) << process.error().message;
    EXPECT_FALSE(process->read<uint64_t>(8));
    EXPECT_FALSE(process->read<uint64_t>(UINT64_MAX - 3));
    EXPECT_EQ(process->threads().count(child), 1U);
    // Of a library, whose symbols survive a strip. In a fork it is where it is here.
    std::string libc;
    for (const Mapping& one : process->mappings())
        if (one.path.find("/libc.so.6") != std::string::npos) libc = one.path;
    ASSERT_FALSE(libc.empty());
    const auto symbols = process->symbols(libc, {"in6addr_loopback", "no_such_symbol"});
    ASSERT_TRUE(symbols) << symbols.error().message;
    ASSERT_EQ(symbols->size(), 1U);
    const auto bytes = process->read<std::array<uint8_t, 16>>(symbols->front().address);
    ASSERT_TRUE(bytes);
    EXPECT_THAT(*bytes, testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
    for (int waited = 0; waited < 1000 && process->read<int>(reinterpret_cast<uint64_t>(&known_number)) != 12;
         ++waited)
        usleep(1000);
    EXPECT_EQ(process->read<int>(reinterpret_cast<uint64_t>(&known_number)), 12);
    EXPECT_THAT(process->symbols("/no/such\033/file", {"x"}).error().message,
                testing::StrEq("/no/such?/file is not mapped"));
    made.end();
    EXPECT_FALSE(process->read<int>(reinterpret_cast<uint64_t>(&known_number)));
    EXPECT_THAT(Process::open(child).error().message, HasSubstr("there is no process "));
}

// Whatever it makes up: 256 MiB are enough.
TEST(StacksProcess, IsNotReadForEver) {
    const auto self = Process::open(getpid());
    ASSERT_TRUE(self) << self.error().message;
    std::vector<char> page(1 << 20);
    int read = 0;
    while (read < 1000 && self->read(reinterpret_cast<uint64_t>(page.data()), page.data(), page.size()))
        ++read;
    EXPECT_EQ(read, 256);
}

TEST(StacksProcess, WhatIsNoProgramHasNoSymbols) {
    for (const std::string& text :
         {std::string(), std::string("#!/bin/sh\n"), "\177ELF" + std::string(5000, '\377'),
          "\177ELF\2\1\1" + std::string(5000, '\1')}) {
        const int file = memfd_create("program", MFD_CLOEXEC);
        ASSERT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        EXPECT_TRUE(find_symbols(file, {"_PyRuntime"}).empty());
        close(file);
    }
}

TEST(StacksProcess, AnotherUsersIsRefused) {
    if (getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0) _exit(1);
        const auto process = Process::open(getppid());
        _exit(!process && process.error().message.find("another user's") != std::string::npos ? 0 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace dp::stacks
