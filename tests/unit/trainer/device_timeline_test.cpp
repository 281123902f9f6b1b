// SPDX-License-Identifier: Apache-2.0
//
// A profile of a device that works behind the calls of its operations: whose time is whose, and what is known if its maker's profiler
// is silent or fails. The GPU's own profiler is asked where there is a GPU, else an emulated one.
#include "trainer/devices/device_timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "small_models.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/profile/profile.hpp"
#include "trainer/profile/views.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kOwn = 7, kAside = 9;

std::vector<LoggedOperation> called(std::initializer_list<Operation> operations) {
    std::vector<LoggedOperation> all;
    for (const Operation one : operations) all.push_back({one, 0, 1000, 1001, 0, 0, 0, 0});
    return all;
}

std::vector<std::pair<std::int64_t, std::int64_t>> times_of(const std::vector<LoggedOperation>& operations) {
    std::vector<std::pair<std::int64_t, std::int64_t>> times;
    for (const LoggedOperation& one : operations) times.emplace_back(one.begin, one.end);
    return times;
}

using Time = std::pair<std::int64_t, std::int64_t>;

TEST(DeviceTimes, AnOperationTakesFromItsFirstWorkToItsLast) {
    auto operations = called({Operation::linear, Operation::add, Operation::adam});
    // In any order; one operation has three works with a gap, one has none.
    EXPECT_TRUE(give_device_times(
                    operations, {{2, 90, 95, kOwn}, {0, 30, 40, kOwn}, {0, 10, 20, kOwn}, {0, 20, 25, kOwn}})
                    .empty());
    EXPECT_THAT(times_of(operations), ElementsAre(Time{10, 40}, Time{40, 40}, Time{90, 95}));
}

TEST(DeviceTimes, WhatIsBesideIsNotTheStreamsOwn) {
    auto operations =
        called({Operation::linear_backward_parameters, Operation::start_all_reduces,
                Operation::linear_backward_input, Operation::wait_all_reduces, Operation::adam});
    // The sums take until 70; the stream has nothing to do from 50 on.
    const auto aside = give_device_times(
        operations, {{0, 10, 20, kOwn}, {1, 22, 70, kAside}, {2, 20, 50, kOwn}, {4, 72, 80, kOwn}});
    EXPECT_THAT(times_of(operations),
                ElementsAre(Time{10, 20}, Time{20, 20}, Time{20, 50}, Time{50, 70}, Time{72, 80}));
    ASSERT_EQ(aside.size(), 1u);
    EXPECT_EQ(aside[0].end, 70);
}

TEST(DeviceTimes, AWaitThatHasNothingToWaitForTakesNoTime) {
    auto operations = called(
        {Operation::start_all_reduces, Operation::linear, Operation::wait_all_reduces, Operation::adam});
    give_device_times(operations, {{0, 12, 30, kAside}, {1, 10, 50, kOwn}, {3, 60, 70, kOwn}});
    EXPECT_THAT(times_of(operations), ElementsAre(Time{10, 10}, Time{10, 50}, Time{50, 50}, Time{60, 70}));
}

TEST(DeviceTimes, OnlyAWaitTakesTimeInWhichTheStreamDoesNothing) {
    auto operations = called({Operation::start_all_reduces, Operation::download, Operation::adam});
    give_device_times(operations, {{0, 10, 90, kAside}, {1, 10, 20, kOwn}, {2, 60, 70, kOwn}});
    EXPECT_THAT(times_of(operations), ElementsAre(Time{10, 10}, Time{10, 20}, Time{60, 70}));
}

TEST(DeviceTimes, OfNothingAreNone) {
    auto operations = called({Operation::add});
    EXPECT_TRUE(give_device_times(operations, {}).empty());
    std::vector<LoggedOperation> none;
    EXPECT_TRUE(give_device_times(none, {}).empty());
}

// Does 10 ns of work in each operation, 100 ns after the one before; sums go on beside for as long as the next two.
class Told final : public DeviceTimeline {
 public:
    void start() override { is_on = true; }
    void begin(std::uint32_t number, std::string_view name, const std::string& layer) override {
        said += std::string(name) + (layer.empty() ? "" : " " + layer) + ";";
        if (!is_on) return;
        const std::int64_t at = 100 * static_cast<std::int64_t>(number);
        works_.push_back(name == "start_all_reduces" ? DeviceWork{number, at, at + 250, kAside}
                                                     : DeviceWork{number, at, at + 10, kOwn});
    }
    void end() override { said += "."; }
    Result<std::vector<DeviceWork>> works() override {
        is_on = false;
        if (!problem.empty()) return fail(Fault::device, problem);
        return std::exchange(works_, {});
    }

    bool is_on = false;
    std::string said, problem;

 private:
    std::vector<DeviceWork> works_;
};

struct ProfiledBehindCalls : ::testing::Test {
    ProfileRecorder recorder{{2, 3}};
    std::shared_ptr<Told> told = std::make_shared<Told>();
    std::unique_ptr<Model> model = find_model("linear")->make({});
    std::unique_ptr<Device> device = open_cpu(1);
    SingleCommunicator alone;

    void SetUp() override {
        model->place(*device, 1, 4);
        recorder.log().set_timeline(told);
        follow();
    }
    void follow() { recorder.follow(model->parameters(), alone, device->memory(), 9); }
    void step() {
        recorder.on_step_begin();
        for (const Operation one : {Operation::gather, Operation::start_all_reduces, Operation::linear,
                                    Operation::wait_all_reduces, Operation::adam})
            const auto timed = recorder.log().time(one, 0, {});
        recorder.on_step();
    }
};

TEST_F(ProfiledBehindCalls, TimesAreTheDevices) {
    for (int i = 0; i < 4; ++i) step();
    EXPECT_FALSE(told->is_on) << "it went on after the last step";
    ASSERT_EQ(recorder.steps().size(), 2u);
    const Profile profile = profile_of(recorder, std::nullopt);
    // A step is 5 operations of 100 ns; the last one has no next that says when it ends.
    EXPECT_NEAR(profile.seconds, (500e-9 + 410e-9) / 2, 1e-12);
    ASSERT_TRUE(profile.hidden);
    // The wait's stream has worked until 310 of each step's 500 ns, and the sums until 350: before that, 210 ns are hidden.
    EXPECT_NEAR(profile.parts[static_cast<std::size_t>(Part::communication)], 10e-9, 1e-12);
    EXPECT_NEAR(*profile.hidden, 240e-9, 1e-12);
    EXPECT_EQ(told->said.substr(0, told->said.find('.') + 1), "gather;.");
    // The sums are in the trace, beside the rest: the second step's were begun 500 ns after the first's.
    EXPECT_THAT(profile_trace(recorder, 0),
                ::testing::HasSubstr(R"("tid":1,"name":"start_all_reduces","ts":0.6,"dur":0.25)"));
}

TEST_F(ProfiledBehindCalls, WhatIsForgottenHasNoTimes) {
    step();
    step();
    recorder.on_step_begin();
    { const auto timed = recorder.log().time(Operation::gather, 0, {}); }
    follow();  // a peer has died
    for (int i = 0; i < 4; ++i) step();
    ASSERT_EQ(recorder.steps().size(), 2u);
    EXPECT_EQ(recorder.log().operations().size(), 10u);
    EXPECT_EQ(recorder.log().operations().front().begin, 600)
        << "those of the first training were numbered 0 to 5";
}

TEST_F(ProfiledBehindCalls, ATrainingThatEndsEarlyIsSettledAtItsEnd) {
    step();
    step();
    EXPECT_TRUE(told->is_on);
    recorder.settle();
    EXPECT_FALSE(told->is_on);
    EXPECT_EQ(recorder.log().operations().front().begin, 0);
}

TEST_F(ProfiledBehindCalls, AProfilerThatFailsLeavesNoProfileAndSaysWhy) {
    told->problem = "it is lost";
    for (int i = 0; i < 4; ++i) step();
    EXPECT_TRUE(recorder.steps().empty());
    EXPECT_EQ(recorder.problem(), "it is lost");
}

TEST(OperationLog, NamesAloneAreToldOutsideTheProfileToo) {
    OperationLog log;
    const auto told = std::make_shared<Told>();
    log.set_timeline(told);
    { const auto timed = log.time(Operation::add, 0, {}); }
    EXPECT_EQ(told->said, "");
    log.announce_all();
    {
        const auto outer = log.time(Operation::linear_gelu, 0, {});
        const auto inner = log.time(Operation::linear, 0, {});
    }
    EXPECT_EQ(told->said, "linear_gelu;.");
    EXPECT_TRUE(log.operations().empty());
}

class Recording final : public Observer {
 public:
    explicit Recording(ProfileRecorder& recorder) : recorder_(recorder) {}
    void on_step_begin() override { recorder_.on_step_begin(); }
    void on_step(std::int64_t, std::int64_t, const Schedule&) override { recorder_.on_step(); }

 private:
    ProfileRecorder& recorder_;
};

TEST(GpuProfile, HasTheTimesOfTheGpu) {
    ProfileRecorder recorder({3, 4});
    const auto device = open_cuda({}, &recorder.log());
    if (!device && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << device.error().message;
    if (!device) GTEST_SKIP() << "not run on CUDA: " << device.error().message;
    const ModelInfo& info = *find_model("linear");
    const auto model = info.make({});
    Settings settings;
    settings.batch = 4;
    settings.max_steps = 5;
    SingleCommunicator alone;
    recorder.follow(model->parameters(), alone, (*device)->memory(), 5);
    Recording observer(recorder);
    const auto done = train(info, *model, data_for(info), settings, **device, alone, observer);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(recorder.steps().size(), 2u) << recorder.problem();
    const Profile profile = profile_of(recorder, std::nullopt);
    EXPECT_GT(profile.seconds, 0);
    EXPECT_GE(profile.other, 0);
    for (const Part part : {Part::load, Part::forward, Part::backward, Part::optimizer})
        EXPECT_GT(profile.parts[static_cast<std::size_t>(part)], 0) << name_of(part);
    for (const ProfileRow& row : profile.operations)
        EXPECT_GT(row.total(), 0) << row.name << " has no work of the GPU";
    // On one stream, nothing overlaps.
    std::int64_t now = 0;
    for (const LoggedOperation& one : recorder.log().operations()) {
        EXPECT_GE(one.begin, now);
        now = one.end;
    }
}

}  // namespace
}  // namespace dp::trainer
