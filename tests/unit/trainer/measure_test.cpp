// SPDX-License-Identifier: Apache-2.0
//
// What measure-performance takes and says.
#include "trainer/commands/measure.hpp"

#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

#include "devices.hpp"
#include "thread_world.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Spread, IsLeastMedianAndMostWithPartsBetweenNumbers) {
    const Spread spread = spread_of({5, 1, 4, 2, 3});
    EXPECT_EQ(spread.min, 1);
    EXPECT_EQ(spread.median, 3);
    EXPECT_EQ(spread.max, 5);
    EXPECT_NEAR(spread.p5, 1.2, 1e-12);
    EXPECT_NEAR(spread.p95, 4.8, 1e-12);
    EXPECT_EQ(spread_of({1, 2}).median, 1.5);
    const Spread one = spread_of({7});
    EXPECT_EQ(one.min, 7);
    EXPECT_EQ(one.p95, 7);
}

// Takes its time to finish; with `only_first` only that many times.
class Slow final : public Communicator {
 public:
    Slow(Communicator& inner, std::chrono::milliseconds time, std::int64_t only_first)
        : inner_(inner), time_(time), only_first_(only_first) {}
    std::string_view name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        return inner_.all_reduce(tensor, reduction);
    }
    Result<void> all_gather(const Tensor& tensor) override { return inner_.all_gather(tensor); }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        return inner_.broadcast(tensor, root);
    }
    // Called once a step.
    Result<void> wait_all_reduces() override {
        if (steps++ < only_first_) std::this_thread::sleep_for(time_);
        return inner_.wait_all_reduces();
    }
    std::int64_t steps = 0;

 private:
    Communicator& inner_;
    std::chrono::milliseconds time_;
    std::int64_t only_first_;
};

struct Measured {
    Measurement measurement;
    std::int64_t steps = 0;
    std::int64_t memory_peak = 0;
};

Measured measure_linear(Communicator& ranks, std::chrono::milliseconds communication,
                        std::int64_t only_first = 1000) {
    Settings settings;
    settings.batch = 4;
    settings.max_steps = 3;  // of a training; of a measurement --iterations counts
    const auto device = open_cpu(1);
    const auto model = find_model("linear")->make({});
    Slow slow(ranks, communication, only_first);
    const auto done =
        measure(*find_model("linear"), *model, make_linear_regression(), settings, {5, 2}, *device, slow);
    EXPECT_TRUE(done) << done.error().message;
    return {done.value_or(Measurement{}), slow.steps, device->memory().peak()};
}
Measured measure_alone(std::chrono::milliseconds communication) {
    SingleCommunicator alone;
    return measure_linear(alone, communication);
}

TEST(Measure, CountsTheStepsThatItMeasuresWithTheSlowestRanksTime) {
    Measured measured{};
    ThreadWorld(2).run([&](Communicator& ranks) {
        const auto mine = measure_linear(ranks, std::chrono::milliseconds(5));
        if (ranks.rank() == 0) measured = mine;
    });
    const Measurement& m = measured.measurement;
    EXPECT_EQ(m.iterations, 5);
    EXPECT_EQ(m.global_batch, 8);
    EXPECT_EQ(measured.steps, 2 + 5 + 5);  // to warm up, as a whole, and by parts
    EXPECT_GE(m.step.min, 0.005);
    EXPECT_LE(m.step.min, m.step.median);
    EXPECT_LE(m.step.median, m.step.max);
    EXPECT_LE(m.samples_per_second, 5 * 8 / 0.025);
    EXPECT_GT(m.cpu_seconds_per_sample, 0) << "of both";
    EXPECT_EQ(m.flops_per_sample, 3 * find_model("linear")->make({})->forward_flops_per_sample());
}

TEST(Measure, KnowsWhatCommunicationCosts) {
    const Measurement quick = measure_alone(std::chrono::milliseconds(0)).measurement;
    const Measurement slow = measure_alone(std::chrono::milliseconds(100)).measurement;
    EXPECT_LT(quick.communication_most, 0.2);
    // What a step takes besides is the machine's, and its sanitizers'.
    EXPECT_GT(slow.communication_least, 0.7 * 0.1 / (0.1 + quick.step.median));
    EXPECT_LE(slow.communication_least, slow.communication_most);
    EXPECT_LT(slow.communication_most, 1);
}

TEST(Measure, WhatWarmsUpDoesNotCount) {
    SingleCommunicator alone;
    const Measurement m = measure_linear(alone, std::chrono::seconds(1), 2).measurement;
    EXPECT_LT(m.step.max, 0.9);
    EXPECT_GT(m.samples_per_second, 5 * 4 / 0.9);
}

TEST(Measure, TakesNoMoreMemoryThanATraining) {
    const auto measured = measure_alone(std::chrono::milliseconds(0));
    Settings settings;
    settings.batch = 4;
    settings.max_steps = 1;
    const auto device = open_cpu(1);
    const auto model = find_model("linear")->make({});
    SingleCommunicator alone;
    class : public Observer {
        void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
        void on_epoch(const EpochReport&, const Schedule&) override {}
    } nobody;
    ASSERT_TRUE(
        train(*find_model("linear"), *model, make_linear_regression(), settings, *device, alone, nobody));
    EXPECT_EQ(measured.memory_peak, device->memory().peak());
}

const Measurement kMeasured{50,    10,      16,  1,    32,     {0.001, 0.0015, 0.002, 0.003, 1.25},
                            10000, 0.00015, 3e9, 0.05, 0.10009};

TEST(Measure, TheTableIsForPeople) {
    EXPECT_EQ(
        measurement_table(kMeasured),
        "  steps                 50 (after 10 to warm up)\n"
        "  global batch          32 samples\n"
        "  step, median          2.000 ms\n"
        "  step, 5 % to 95 %     1.500 ms to 3.000 ms\n"
        "  step, least to most   1.000 ms to 1.250 s\n"
        "  throughput            10000.0 samples/s\n"
        "  CPU time              0.150 ms per sample\n"
        "  arithmetic            30000.00 GFLOP/s\n"
        "  communication         5.0 % of a step waits for it; up to 10.0 % on ranks that wait for others");
}

TEST(Measure, TheLineIsForPrograms) {
    RunFacts facts{"cnn", "cpu", "gloo", 2, 1, 0.5};
    facts.device_name = "cpu, 1 thread";
    facts.memory_peak = 1000;
    EXPECT_EQ(
        measurement_json(facts, kMeasured).dump(),
        R"({"measured":"cnn","device":"cpu","device_name":"cpu, 1 thread","threads":1,"communicator":"gloo",)"
        R"("world_size":2,"nodes":1,"seed":1,"precision":"fp32","deterministic":false,"batch_size":16,"accumulate":1,"global_batch_size":32,"warmup":10,)"
        R"("iterations":50,"samples_per_second":10000.0,"cpu_seconds_per_sample":0.00015,"step_ms_least":1.0,"step_ms_p05":1.5,"step_ms_median":2.0,)"
        R"("step_ms_p95":3.0,"step_ms_most":1250.0,"flops_per_second":30000000000000.0,)"
        R"("communication_share_least":0.05,"communication_share_most":0.10009,"memory_peak_bytes":1000})");
}

}  // namespace
}  // namespace dp::trainer
