// SPDX-License-Identifier: Apache-2.0
//
// The daemon's looks at its GPUs through another program, for as long as the step lasts: what that says is taken once, and what goes wrong with it
// is told once.
#include "loop/gpu_sampler.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framing.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class GpuSamplerTest : public ServerTest {
 protected:
    std::string folder = [] {
        std::string name = (std::filesystem::temp_directory_path() / "dp-gpu-sampler-XXXXXX").string();
        return std::string(mkdtemp(name.data()));
    }();
    ~GpuSamplerTest() override { std::filesystem::remove_all(folder); }

    // A program that says these bytes, and then does this.
    std::vector<std::string> that_says(const std::string& bytes, const std::string& then) const {
        std::ofstream(folder + "/said", std::ios::binary) << bytes;
        return {"/bin/sh", "-c", "cat " + folder + "/said; " + then};
    }
    static wire::NodeUsage usage(uint32_t watts, const std::string& problem = "") {
        wire::NodeUsage said;
        if (problem.empty()) said.add_gpus()->set_watts(watts);
        said.set_problem(problem);
        return said;
    }
    // What it takes within some seconds.
    template <typename Take>
    auto awaited(Take take) {
        auto taken = take();
        run([&] { return taken || (taken = take()); });
        return taken;
    }
};

TEST_F(GpuSamplerTest, TheLastLookIsTakenOnce) {
    GpuSampler sampler(that_says(to_frame(usage(1)) + to_frame(usage(2)), "exec sleep 100"));
    sampler.start(base.get());
    const auto found = awaited([&] { return sampler.take(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->gpus(0).watts(), 2u);
    EXPECT_FALSE(sampler.take());
    EXPECT_FALSE(sampler.take_problem());
}

TEST_F(GpuSamplerTest, AProblemIsToldOnceAndLooksGoOn) {
    const std::string problem = to_frame(usage(0, "GPU is lost"));
    GpuSampler sampler(that_says(problem + problem + to_frame(usage(3)) + problem, "exec sleep 100"));
    sampler.start(base.get());
    EXPECT_EQ(awaited([&] { return sampler.take_problem(); }), "GPU is lost");
    EXPECT_TRUE(awaited([&] { return sampler.take(); }));
    EXPECT_FALSE(sampler.take_problem());
}

TEST_F(GpuSamplerTest, OneThatIsLostDoesNotHideTheOthers) {
    wire::NodeUsage said = usage(4);
    said.set_problem("GPU 3: it is lost");
    GpuSampler sampler(that_says(to_frame(said), "exec sleep 100"));
    sampler.start(base.get());
    const auto found = awaited([&] { return sampler.take(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->gpus(0).watts(), 4u);
    EXPECT_EQ(sampler.take_problem(), "GPU 3: it is lost");
}

TEST_F(GpuSamplerTest, AProgramThatEndsIsMissed) {
    GpuSampler sampler(that_says(to_frame(usage(1)), ":"));
    sampler.start(base.get());
    EXPECT_EQ(awaited([&] { return sampler.take_problem(); }), "the program that looked at them has ended");
    EXPECT_TRUE(sampler.take()) << "what it had said";
}

TEST_F(GpuSamplerTest, NonsenseEndsIt) {
    GpuSampler sampler(that_says(std::string(100, '\377'), "exec sleep 100"));
    sampler.start(base.get());
    EXPECT_TRUE(awaited([&] { return sampler.take_problem(); }));
    EXPECT_FALSE(sampler.take());
}

TEST_F(GpuSamplerTest, WithoutGpusThereIsNoProgram) {
    EXPECT_TRUE(every({}, std::chrono::milliseconds(5000)).empty());
    GpuSampler sampler({});
    sampler.start(base.get());
    EXPECT_FALSE(sampler.take());
    EXPECT_FALSE(sampler.take_problem());
}

TEST(GpuSampler, LooksAsOftenAsSamplesAreTakenButAtMostEverySecond) {
    using Command = std::vector<std::string>;
    EXPECT_EQ(every({"dpctl"}, std::chrono::milliseconds(100)), (Command{"dpctl", "--every", "1000"}));
    EXPECT_EQ(every({"dpctl"}, std::chrono::minutes(1)), (Command{"dpctl", "--every", "60000"}));
}

}  // namespace
}  // namespace dp
