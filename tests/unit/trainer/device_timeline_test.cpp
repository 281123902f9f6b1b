// SPDX-License-Identifier: Apache-2.0
//
// A profile of a device that works behind the calls of its operations: whose time is whose, and what is known if its maker's profiler
// is silent or fails. The GPU's own profiler is asked where there is a GPU, else an emulated one.
#include "trainer/devices/device_timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "recording.hpp"
#include "small_models.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/profile/profile.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;

// Operation i was called from 10 i to 10 i + 5.
std::vector<LoggedOperation> called(std::initializer_list<Operation> operations) {
    std::vector<LoggedOperation> all;
    for (const Operation one : operations) {
        const auto at = static_cast<std::int64_t>(10 * all.size());
        all.push_back({one, 0, at, at + 5, 0, 0, 0, 0});
    }
    return all;
}

// What operation i queued.
DeviceWork by(std::int64_t i, std::int64_t begin, std::int64_t end) {
    return {10 * i + 2, begin, end};
}

using Time = std::pair<std::int64_t, std::int64_t>;

std::vector<Time> times_of(const std::vector<LoggedOperation>& operations) {
    std::vector<Time> times;
    for (const LoggedOperation& one : operations) times.emplace_back(one.begin, one.end);
    return times;
}

TEST(DeviceTimes, AnOperationTakesFromItsFirstWorkToItsLast) {
    auto operations = called({Operation::linear, Operation::add, Operation::adam});
    // In any order; one operation has three works with a gap, one has none.
    const auto aside =
        give_device_times(operations, {by(2, 190, 195), by(0, 130, 140), by(0, 110, 120), by(0, 120, 125)});
    ASSERT_TRUE(aside);
    EXPECT_TRUE(aside->empty());
    EXPECT_THAT(times_of(operations), ElementsAre(Time{110, 140}, Time{140, 140}, Time{190, 195}));
}

TEST(DeviceTimes, SumsGoOnBesideAndTheirWaitTakesWhatNothingHides) {
    const auto step = {Operation::linear_backward_parameters, Operation::start_all_reduces,
                       Operation::linear_backward_input, Operation::wait_all_reduces, Operation::adam};
    auto operations = called(step);
    // The sums take until 170; nothing else is done from 150 on.
    const auto aside =
        give_device_times(operations, {by(0, 110, 120), by(1, 122, 170), by(2, 120, 150), by(4, 172, 180)});
    EXPECT_THAT(times_of(operations),
                ElementsAre(Time{110, 120}, Time{120, 120}, Time{120, 150}, Time{150, 170}, Time{172, 180}));
    ASSERT_TRUE(aside && aside->size() == 1);
    EXPECT_EQ(aside->front().operation, 1u);
    // Where ranks survive others, the wait ends with a sum of its own, which begins only once the others have ended.
    operations = called(step);
    give_device_times(operations,
                      {by(0, 110, 120), by(1, 122, 170), by(2, 120, 150), by(3, 175, 178), by(4, 180, 190)});
    EXPECT_THAT(times_of(operations),
                ElementsAre(Time{110, 120}, Time{120, 120}, Time{120, 150}, Time{150, 178}, Time{180, 190}));
}

TEST(DeviceTimes, AWaitThatHasNothingToWaitForTakesNoTime) {
    auto operations = called(
        {Operation::start_all_reduces, Operation::linear, Operation::wait_all_reduces, Operation::adam});
    give_device_times(operations, {by(0, 112, 130), by(1, 110, 150), by(3, 160, 170)});
    EXPECT_THAT(times_of(operations),
                ElementsAre(Time{110, 110}, Time{110, 150}, Time{150, 150}, Time{160, 170}));
}

TEST(DeviceTimes, OnlyAWaitTakesTimeInWhichNothingElseIsDone) {
    auto operations = called({Operation::start_all_reduces, Operation::download, Operation::adam});
    give_device_times(operations, {by(0, 110, 190), by(1, 110, 120), by(2, 160, 170)});
    EXPECT_THAT(times_of(operations), ElementsAre(Time{110, 110}, Time{110, 120}, Time{160, 170}));
}

TEST(DeviceTimes, WhatNoOperationQueuedIsLeftOut) {
    auto operations = called({Operation::linear, Operation::adam});
    // Between two calls, before the first, after the last.
    const auto aside = give_device_times(
        operations, {by(0, 110, 120), {7, 121, 129}, {-1, 1, 2}, {16, 150, 160}, by(1, 130, 140)});
    EXPECT_TRUE(aside && aside->empty());
    EXPECT_THAT(times_of(operations), ElementsAre(Time{110, 120}, Time{130, 140}));
    const auto before = times_of(operations);
    EXPECT_FALSE(give_device_times(operations, {{-5, 1, 2}})) << "nothing belongs to an operation";
    EXPECT_EQ(times_of(operations), before);
    EXPECT_FALSE(give_device_times(operations, {}));
}

// Does 10 ns of work in each operation, 100 ns after the one before; sums go on for 250 ns.
class Told final : public DeviceTimeline {
 public:
    void start() override { is_on = true; }
    void stop() override {
        is_on = false;
        works_.clear();
    }
    void wait() override { ++waits; }
    void begin(std::string_view name, const std::string& layer) override {
        said += std::string(name) + (layer.empty() ? "" : " " + layer) + ";";
        if (!is_on) return;
        const std::int64_t at = 100 * count_++;
        works_.push_back({steady_nanoseconds(), at, at + (name == "start_all_reduces" ? 250 : 10)});
    }
    void end() override { said += "."; }
    Result<std::vector<DeviceWork>> works() override {
        is_on = false;
        if (!problem.empty()) return fail(Fault::device, problem);
        return std::exchange(works_, {});
    }

    bool is_on = false;
    int waits = 0;
    std::string said, problem;

 private:
    std::int64_t count_ = 0;
    std::vector<DeviceWork> works_;
};

struct ProfiledBehindCalls : ::testing::Test {
    ProfileRecorder recorder{{2, 3}};
    std::shared_ptr<Told> told = std::make_shared<Told>();
    std::unique_ptr<Device> device = open_cpu(1);
    std::unique_ptr<Model> model = find_model("linear")->make({});  // its tensors go before their device
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
    EXPECT_EQ(told->waits, 2) << "before the profiled steps and after them, not for each operation";
    ASSERT_EQ(recorder.steps().size(), 2u);
    const Profile profile = profile_of(recorder, std::nullopt);
    // A step is 5 operations of 100 ns. The last one ends with its last work; what the host did between two steps, if it took less, is of none.
    EXPECT_LE(profile.seconds, (500e-9 + 410e-9) / 2 + 1e-12);
    EXPECT_GE(profile.seconds, 410e-9 - 1e-12);
    // Of a step's 500 ns, the sums take those from 100 to 350. From 210 on there was nothing else to do until 300, where the wait has work of its
    // own, as where ranks survive others.
    EXPECT_NEAR(profile.parts[static_cast<std::size_t>(Part::communication)], 100e-9, 1e-12);
    ASSERT_TRUE(profile.hidden);
    EXPECT_NEAR(*profile.hidden, 150e-9, 1e-12);
    EXPECT_EQ(told->said.substr(0, told->said.find('.') + 1), "gather;.");
    // The sums are in the trace, beside the rest: the first step's were begun 100 ns after it.
    EXPECT_THAT(profile_trace(recorder, 0),
                ::testing::HasSubstr(R"("tid":1,"name":"start_all_reduces","ts":0.1,"dur":0.25)"));
}

TEST_F(ProfiledBehindCalls, WhatTheHostDoesBetweenTwoStepsIsOfNeither) {
    step();
    step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than the device's 90 ns
    step();
    ASSERT_EQ(recorder.steps().size(), 2u);
    EXPECT_EQ(recorder.steps()[0].end - recorder.steps()[0].begin, 410);
}

TEST_F(ProfiledBehindCalls, TheProfileTakesWhatItsStepsTakeLonger) {
    ProfileRecorder late({4, 5});
    late.log().set_timeline(told);
    late.follow(model->parameters(), alone, device->memory(), 9);
    for (int i = 0; i < 5; ++i) {
        late.on_step_begin();
        std::this_thread::sleep_for(std::chrono::milliseconds(i < 3 ? 10 : 200));
        { const auto timed = late.log().time(Operation::adam, 0, {}); }
        late.on_step();
    }
    EXPECT_EQ(told->waits, 3);
    EXPECT_GE(late.seconds_without(), 0.01);
    ASSERT_TRUE(late.overhead());
    EXPECT_GT(*late.overhead(), 0.5) << "a step of 200 ms beside one of 10 ms";
    // Without a step before but the first, nothing is known.
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(recorder.overhead(), std::nullopt);
    EXPECT_THAT(profile_text(profile_of(recorder, std::nullopt)),
                ::testing::HasSubstr("the profile itself takes a part that is not known"));
    EXPECT_TRUE(profile_json(profile_of(recorder, std::nullopt))["overhead"].is_null());
}

TEST_F(ProfiledBehindCalls, WhatIsForgottenIsNotNoted) {
    step();
    recorder.on_step_begin();
    { const auto timed = recorder.log().time(Operation::gather, 0, {}); }
    EXPECT_TRUE(told->is_on);
    follow();  // a peer has died
    EXPECT_FALSE(told->is_on) << "until the next profiled step";
    for (int i = 0; i < 4; ++i) step();
    ASSERT_EQ(recorder.steps().size(), 2u);
    ASSERT_EQ(recorder.log().operations().size(), 10u);
    EXPECT_EQ(recorder.log().operations().front().begin, 100);
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
