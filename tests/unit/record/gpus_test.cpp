// SPDX-License-Identifier: Apache-2.0
//
// What is written of GPUs is read again, costs little, and whatever a file says is survived.
#include "record/gpus.hpp"

#include "dpctl/report.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

using Values = std::array<int32_t, kGpuValues>;
constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr int32_t kTooHot = 0x40;

void add_gpu(wire::NodeUsage& found, uint32_t tile, const Values& values) {
    auto& gpu = *found.add_gpus();
    gpu.set_tile(tile);
    gpu.set_device(tile);
    gpu.set_memory_total(81'559 * kMib);
    gpu.set_memory_used(static_cast<uint64_t>(values[1]) * kMib);
    const auto set = [&](GpuValue value, void (wire::NodeUsage::Gpu::*setter)(uint32_t)) {
        const int32_t known = values[static_cast<size_t>(value)];
        if (known >= 0) (gpu.*setter)(static_cast<uint32_t>(known));
    };
    set(GpuValue::busy, &wire::NodeUsage::Gpu::set_busy_percent);
    set(GpuValue::power, &wire::NodeUsage::Gpu::set_watts);
    set(GpuValue::temperature, &wire::NodeUsage::Gpu::set_celsius);
    set(GpuValue::clock, &wire::NodeUsage::Gpu::set_sm_mhz);
    set(GpuValue::slowed_by, &wire::NodeUsage::Gpu::set_clock_reasons);
}

wire::NodeUsage gpus(const std::vector<std::pair<uint32_t, Values>>& all) {
    wire::NodeUsage found;
    for (const auto& [tile, values] : all) add_gpu(found, tile, values);
    return found;
}

constexpr Values kBusy = {97, 70'000, 650, 61, 1980, 0}, kHot = {98, 70'000, 500, 88, 1200, kTooHot},
                 kInstance = {-1, 5'000, -1, -1, -1, -1};

TEST(Gpus, WhatIsWrittenIsReadAgain) {
    GpuChanges changes;
    GpuReader reader;
    const wire::NodeUsage looks[] = {gpus({{0, kBusy}, {1, kInstance}}), gpus({{0, kHot}, {1, kInstance}}),
                                     gpus({{0, kHot}, {1, kInstance}}), gpus({{2, kBusy}}),
                                     gpus({{0, kBusy}, {1, kBusy}})};
    for (const wire::NodeUsage& look : looks) {
        record::Sample sample;
        changes.add_to(sample, look);
        const auto read = reader.take(sample);
        ASSERT_EQ(read.size(), static_cast<size_t>(look.gpus_size()));
        for (int i = 0; i < look.gpus_size(); ++i) {
            wire::NodeUsage again;
            add_gpu(again, read[static_cast<size_t>(i)].tile, read[static_cast<size_t>(i)].values);
            EXPECT_EQ(again.gpus(0).SerializeAsString(), look.gpus(i).SerializeAsString());
        }
    }
    EXPECT_TRUE(reader.take(record::Sample()).empty()) << "they were not looked at";
}

TEST(Gpus, ALookAtWhichNothingChangesCostsAByteEach) {
    GpuChanges changes;
    record::Sample first, second;
    changes.add_to(first, gpus({{0, kBusy}, {1, kBusy}, {2, kHot}}));
    changes.add_to(second, gpus({{0, kBusy}, {1, kBusy}, {2, kHot}}));
    EXPECT_EQ(first.gpus_size(), 3);
    EXPECT_EQ(second.gpus_size(), 0) << "they are named once";
    EXPECT_EQ(second.ByteSizeLong(), 3u + 3u);
}

TEST(Gpus, ThatItsPowerIsCappedOrItIsIdleDoesNotSlowAGpu) {
    Values capped = kBusy;
    capped[static_cast<size_t>(GpuValue::slowed_by)] = 0x4 | 0x1 | kTooHot;
    GpuChanges changes;
    record::Sample sample;
    changes.add_to(sample, gpus({{0, capped}}));
    EXPECT_EQ(sample.gpu_slowed_by(0), kTooHot);
}

TEST(Gpus, OnlyThoseOfTheRanks) {
    GpuChanges changes;
    record::Sample sample, none;
    changes.add_to(sample, gpus({{0, kBusy}, {1, kHot}, {2, kHot}}), {1});
    ASSERT_EQ(sample.gpus_size(), 1);
    EXPECT_EQ(sample.gpus(0).tile(), 1u);
    changes.add_to(none, gpus({{0, kBusy}}), {1});
    EXPECT_EQ(none.ByteSizeLong(), 0u);
}

TEST(Gpus, OneThatIsSeveralTilesIsRecordedOnce) {
    wire::NodeUsage found = gpus({{2, kBusy}, {3, kBusy}, {4, kHot}, {5, kHot}});
    for (auto& gpu : *found.mutable_gpus()) gpu.set_device(gpu.tile() / 2);
    record::Sample all, some;
    GpuChanges().add_to(all, found);
    ASSERT_EQ(all.gpus_size(), 2);
    EXPECT_EQ(all.gpus(1).tile(), 4u);
    GpuChanges().add_to(some, found, {3});
    ASSERT_EQ(some.gpus_size(), 1);
    EXPECT_EQ(some.gpus(0).tile(), 3u);
}

TEST(Gpus, WhateverAFileSaysIsSurvived) {
    GpuReader reader;
    record::Sample sample;
    for (int i = 0; i < 1000; ++i) sample.add_gpus()->set_tile(7);
    for (int i = 0; i < 3; ++i) sample.add_gpu_busy_percent(INT32_MAX);
    sample.add_gpu_watts(INT32_MIN);
    for (int look = 0; look < 3; ++look) {
        const auto read = reader.take(sample);
        EXPECT_EQ(read.size(), 3u) << "of the others nothing is told";
        EXPECT_EQ(read[0].of(GpuValue::busy), 1 << 30);
        EXPECT_EQ(read[0].of(GpuValue::power), -1);
    }
    std::vector<GpuSummary> all;
    add_to(all, reader.take(sample), 1);
    EXPECT_EQ(all.size(), 1u) << "of one tile";
}

TEST(Gpus, ReasonsInWords) {
    EXPECT_EQ(slowed_in_words(0), "");
    EXPECT_EQ(slowed_in_words(0x5), "") << "idle, or at its power cap: as it should be";
    EXPECT_EQ(slowed_in_words(0x20), "too hot");
    EXPECT_EQ(slowed_in_words(0x40 | 0x20 | 0x80 | 0x8), "too hot, power brake, hardware");
}

class GpuRecords : public RecordTest {
 protected:
    // Ten seconds, in the last four of which the second GPU is hot; it is looked at every second but the first.
    void record() {
        RecordedFile file(folder, 0, 2);
        file.generation(0, 0, {0, 1});
        GpuChanges changes;
        for (int second = 1; second <= 10; ++second)
            file.sample(second * 1000, [&](record::Sample& sample) {
                sample.set_node_memory_mib(100);
                if (second > 1) changes.add_to(sample, gpus({{0, kBusy}, {1, second > 6 ? kHot : kBusy}}));
            });
        file.end(10'000);
    }
};

TEST_F(GpuRecords, AreSummedUpByGpuAndByWindow) {
    record();
    const Timeline time = timeline();
    const NodeTimeline& node = time.nodes[0];
    ASSERT_EQ(node.gpus.size(), 2u);
    EXPECT_EQ(node.gpus[0].memory_mib, 81'559u);
    EXPECT_NEAR(*node.gpus[0].of(GpuValue::power).mean(), 650, 1e-9);
    EXPECT_NEAR(*node.gpus[1].of(GpuValue::power).mean(), 650 - 150 * 4 / 9.0, 1e-9) << "of nine seconds";
    EXPECT_EQ(node.gpus[1].of(GpuValue::clock).lowest, 1200);
    EXPECT_EQ(node.gpus[1].of(GpuValue::temperature).highest, 88);
    EXPECT_EQ(node.gpus[0].slowed_seconds, 0);
    EXPECT_NEAR(node.gpus[1].slowed_seconds, 4, 1e-9);
    ASSERT_EQ(time.windows, 10u);
    EXPECT_EQ(node.windows[0].gpus.of(0), std::nullopt);
    const std::array<double, kGpuCourses> before = {97, 70'000, 1300, 61, 1980},
                                          after = {97.5, 70'000, 1150, 88, 1200};
    for (size_t course = 0; course < kGpuCourses; ++course) {
        EXPECT_EQ(node.windows[3].gpus.of(course), before[course]) << course;
        EXPECT_EQ(node.windows[9].gpus.of(course), after[course]) << course;
    }
}

TEST_F(GpuRecords, AfterAGapOneLookDoesNotStandForAllOfIt) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1);
    GpuChanges changes;
    for (const int second : {1, 2, 3, 63, 64})
        file.sample(second * 1000, [&](record::Sample& sample) {
            changes.add_to(sample, gpus({{0, kHot}}));
        });
    file.end(64'000);
    const Timeline time = timeline();
    EXPECT_NEAR(time.nodes[0].gpus[0].slowed_seconds, 3 + 2 + 1, 1e-9);
    EXPECT_EQ(time.nodes[0].windows[30].gpus.of(0), std::nullopt);
    EXPECT_EQ(time.nodes[0].windows[62].gpus.of(0), 98);
}

TEST_F(GpuRecords, AreInTheReport) {
    record();
    Report report;
    const Records all = records();
    report.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
    const std::string text = report_text(report);
    EXPECT_NE(text.find("slowed for"), std::string::npos) << text;
    EXPECT_NE(text.find("1200 MHz  4.0 s: too hot"), std::string::npos) << text;
    const std::string json = report_json(report);
    EXPECT_NE(json.find("\"slowed_seconds\":4.0,\"slowed_by\":\"too hot\""), std::string::npos) << json;
    std::ostringstream trace;
    ASSERT_TRUE(write_trace(report, trace));
    EXPECT_NE(trace.str().find("GPUs watts"), std::string::npos);
}

TEST_F(GpuRecords, WithoutAnyNothingIsSaid) {
    RecordedFile(folder, 0, 1).generation(0, 0, {0}, 1).end(1000);
    Report report;
    const Records all = records();
    report.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
    EXPECT_EQ(report_text(report).find("GPU"), std::string::npos);
    EXPECT_EQ(report_json(report).find("gpu"), std::string::npos);
}

}  // namespace
}  // namespace dp
