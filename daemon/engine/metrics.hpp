// SPDX-License-Identifier: Apache-2.0
//
// Metrics as Prometheus reads them: its text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/), and OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dp.pb.h"

namespace dp {

enum class MetricsFormat { prometheus, openmetrics };

// Writes one family of metrics after another.
class MetricsWriter {
 public:
    enum class Type { gauge, counter, histogram };
    explicit MetricsWriter(MetricsFormat format) : format_(format) {}

    // Of a counter the name ends in "_total".
    void family(std::string_view name, Type type, std::string_view help);
    // Of the present family. `labels` as label() makes them; `suffix`: "_bucket", "_sum", "_count" of a histogram.
    void sample(const std::string& labels, int64_t value, std::string_view suffix = "");
    void sample(const std::string& labels, double value, std::string_view suffix = "");
    std::string finish();

 private:
    MetricsFormat format_;
    std::string name_;
    std::string out_;

    void write(const std::string& labels, std::string_view value, std::string_view suffix);
};

// In the fewest digits: "0.25", "10".
std::string number_text(double value);

// step="12.0"; the value is made printable, and escaped.
std::string label(std::string_view name, std::string_view value);

// Silent nodes that are named, for each step.
inline constexpr int kMostSilentNamed = 32;

// A step as one of its nodes knows it.
struct StepMetrics {
    std::string labels;  // that all its metrics have
    const wire::NodeMetrics* node = nullptr;
};
// Each family once, with what all these steps have of it.
void write_steps(std::span<const StepMetrics> steps, MetricsWriter& out);

}  // namespace dp
