// SPDX-License-Identifier: Apache-2.0
//
// What a record says of a node's GPUs (record.proto, Sample.gpus): written as changes from look to look, and read again. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "record.pb.h"

namespace dp {

// Of a node; its other ones are not recorded.
inline constexpr int kMostGpus = 256;
// The longest reason why they could not be looked at, in bytes.
inline constexpr size_t kMaxGpuProblem = 300;

// In the order of record.proto's lists.
enum class GpuValue { busy, memory, power, temperature, clock, slowed_by };
inline constexpr size_t kGpuValues = 6;
// Those that have a course: all but the last.
inline constexpr size_t kGpuCourses = 5;
// How the GPUs of a node become one: the mean, the sum, or the one that stands out.
enum class OverGpus { mean, sum, highest, lowest };
struct GpuCourseName {
    const char* name;  // in the report's JSON, with its unit
    OverGpus over;
};
inline constexpr std::array<GpuCourseName, kGpuCourses> kGpuCourseNames = {{{"busy_percent", OverGpus::mean},
                                                                            {"memory_mib", OverGpus::highest},
                                                                            {"watts", OverGpus::sum},
                                                                            {"celsius", OverGpus::highest},
                                                                            {"sm_mhz", OverGpus::lowest}}};

struct GpuState {
    uint32_t tile = 0, memory_mib = 0;
    std::array<int32_t, kGpuValues> values{};  // -1: not known
    int32_t of(GpuValue value) const { return values[static_cast<size_t>(value)]; }
};

class GpuChanges {
 public:
    // `tiles`: those of the node's ranks; empty: all that were looked at. Nothing is added where there is none. A GPU with several tiles
    // goes by the first of them.
    void add_to(record::Sample& sample, const wire::NodeUsage& found, const std::set<uint32_t>& tiles = {});

 private:
    std::vector<GpuState> told_;
};

// The other way, sample by sample.
class GpuReader {
 public:
    // As they were then; empty: they were not looked at.
    std::vector<GpuState> take(const record::Sample& sample);

 private:
    std::vector<GpuState> now_;
};

struct GpuSummary {
    struct Course {
        double sum = 0, seconds = 0;  // mean: sum / seconds
        int32_t lowest = std::numeric_limits<int32_t>::max(), highest = -1;
        std::optional<double> mean() const {
            return seconds > 0 ? std::optional(sum / seconds) : std::nullopt;
        }
    };
    uint32_t tile = 0, memory_mib = 0;
    std::array<Course, kGpuCourses> courses{};
    double slowed_seconds = 0;    // by heat, its power supply or its board
    uint64_t slowed_reasons = 0;  // all of these that there were: record/clock_reasons.hpp
    const Course& of(GpuValue value) const { return courses[static_cast<size_t>(value)]; }
};
// Of one node, by tile: `now` held for so many seconds.
void add_to(std::vector<GpuSummary>& all, const std::vector<GpuState>& now, double seconds);
// "too hot, power brake"; "" if there are none.
std::string slowed_in_words(uint64_t reasons);

// A node's GPUs together in a window of time.
class GpuWindow {
 public:
    void add(const std::vector<GpuState>& now);
    std::optional<double> of(size_t course) const;

 private:
    struct Course {
        double value = 0;
        uint32_t looks = 0;
    };
    std::array<Course, kGpuCourses> courses_{};
};

}  // namespace dp
