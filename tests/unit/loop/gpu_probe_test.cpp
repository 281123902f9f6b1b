// SPDX-License-Identifier: Apache-2.0
//
// The daemon's look at its GPUs through another program: it never waits for it, believes only what is whole,
// and leaves no process.
#include "loop/gpu_probe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace dp {
namespace {

constexpr Time kLater{1000};

wire::NodeUsage one_gpu(uint32_t busy) {
    wire::NodeUsage usage;
    auto& gpu = *usage.add_gpus();
    gpu.set_tile(3);
    gpu.set_busy_percent(busy);
    gpu.set_memory_used(5);
    gpu.set_memory_total(141);
    return usage;
}

// A file that the program `cat` says.
class Said {
 public:
    explicit Said(const std::string& bytes) {
        name_ = (std::filesystem::temp_directory_path() / "dp-gpu-use-XXXXXX").string();
        close(mkstemp(name_.data()));
        say(bytes);
    }
    ~Said() { unlink(name_.c_str()); }
    Said(const Said&) = delete;
    Said& operator=(const Said&) = delete;
    // At once: the program may be reading.
    void say(const std::string& bytes) const {
        std::ofstream(name_ + ".new", std::ios::binary) << bytes;
        std::filesystem::rename(name_ + ".new", name_);
    }
    std::vector<std::string> command() const { return {"/bin/cat", name_}; }

 private:
    std::string name_;
};

// Looks until something was found, or for a second.
wire::NodeUsage look_until_found(GpuProbe& probe, Time at) {
    for (int i = 0; i < 100; ++i) {
        const auto found = probe.look(at);
        if (found.gpus_size() > 0) return found;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
}

template <typename Condition>
bool until(Condition condition) {
    for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
}

TEST(GpuProbe, TellsAtTheNextLookWhatItFound) {
    const Said said(one_gpu(70).SerializeAsString());
    GpuProbe probe(said.command());
    EXPECT_EQ(probe.look(kLater).gpus_size(), 0);
    EXPECT_EQ(look_until_found(probe, kLater).SerializeAsString(), one_gpu(70).SerializeAsString());
    said.say(one_gpu(20).SerializeAsString());
    uint32_t busy = 70;
    for (int i = 0; i < 100 && busy == 70; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        busy = probe.look(kLater).gpus(0).busy_percent();
    }
    EXPECT_EQ(busy, 20u);
}

TEST(GpuProbe, TellsNothingThatIsNotWhole) {
    const Said said(one_gpu(70).SerializeAsString());
    GpuProbe probe(said.command());
    ASSERT_EQ(look_until_found(probe, kLater).gpus_size(), 1);
    said.say("no protobuf");
    for (int i = 0; i < 100 && probe.look(kLater).gpus_size() > 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(probe.look(kLater).gpus_size(), 0);
}

TEST(GpuProbe, IsStartedAsOftenAsAskedAndAsOldAsItsStart) {
    const Said said(one_gpu(70).SerializeAsString());
    GpuProbe probe(said.command(), Time(100'000));
    const auto look = [&](Time after, std::optional<Time> every = Time(60'000)) {
        const auto found = probe.look(kLater + after, every);
        return found.gpus_size() == 1 ? found.gpus(0).busy_percent() : 0;
    };
    EXPECT_EQ(look(Time(0), std::nullopt), 0u);
    EXPECT_TRUE(until([&] { return look(Time(0)) == 70; }));
    said.say(one_gpu(20).SerializeAsString());
    for (const Time after : {Time(5000), Time(59'999)}) {
        EXPECT_EQ(look(after), 70u);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(look(Time(60'000)), 70u) << "it starts another";
    EXPECT_TRUE(until([&] { return look(Time(65'000)) == 20; }));
    EXPECT_EQ(look(Time(160'000), std::nullopt), 20u);
    EXPECT_EQ(look(Time(160'001), std::nullopt), 0u) << "it was started at 60 s";
}

TEST(GpuProbe, AProgramThatIsNotThereOrFailsIsNoNews) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                    {"/no/such/program"},
                                                    {"/bin/false"},
                                                    {"/bin/sh", "-c", "kill -9 $$"}}) {
        GpuProbe probe(command);
        for (int i = 0; i < 5; ++i) {
            EXPECT_EQ(probe.look(kLater).gpus_size(), 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
}

TEST(GpuProbe, OneThatHangsIsStartedOnceAndEndedWithTheDaemon) {
    const Said pids("");
    {
        GpuProbe probe({"/bin/sh", "-c", "echo $$ >>" + pids.command().back() + "; exec sleep 100"});
        for (int i = 0; i < 20; ++i) {
            EXPECT_EQ(probe.look(kLater).gpus_size(), 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    std::ifstream file(pids.command().back());
    pid_t pid = 0;
    pid_t another = 0;
    ASSERT_TRUE(file >> pid);
    EXPECT_FALSE(file >> another) << "a second one was started beside it";
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(GpuProbe, TheProgramGetsNothingOfTheDaemons) {
    const Said seen("");
    setenv("DP_TEST_SECRET", "1", 1);
    const int inherited = dup(STDERR_FILENO);  // without close-on-exec, as the daemon's are
    GpuProbe probe(
        {"/bin/sh", "-c",
         "{ ls /proc/self/fd | tr '\\n' ' '; echo \"$DP_TEST_SECRET.\"; } >" + seen.command().back()});
    (void)probe.look(kLater);
    std::string line;
    for (int i = 0; i < 100 && line.find('.') == std::string::npos; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::ifstream file(seen.command().back());
        std::getline(file, line);
    }
    close(inherited);
    unsetenv("DP_TEST_SECRET");
    EXPECT_EQ(line, "0 1 2 3 .") << "3 is the folder that ls reads";
}

}  // namespace
}  // namespace dp
