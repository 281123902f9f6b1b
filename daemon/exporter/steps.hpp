// SPDX-License-Identifier: Apache-2.0
//
// What the exporter knows of the steps of its node, and the page that Prometheus reads. Pure: whoever watches the daemons
// (exporter/step_watcher.hpp) tells it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "dp.pb.h"
#include "engine/metrics.hpp"
#include "engine/time.hpp"

namespace dp {

// How long a step that has ended stays on the page, so that it is read at least once after what it died of; and how many such steps do.
inline constexpr Time kEndedStays{300'000};
inline constexpr size_t kMostEnded = 1000, kMostEndedOfUser = 200;

class StepsOfNode {
 public:
    using Connection = uint64_t;

    explicit StepsOfNode(std::string version) : version_(std::move(version)) {}

    // A step of this user, "12.0", that can be watched. Its metrics come later.
    void add(Connection connection, const std::string& step, const std::string& user);
    void note(Connection connection, const wire::NodeMetrics& metrics);
    void ended(Connection connection, Time now);
    // Those of which something is known.
    size_t count() const;

    // `unreachable`: steps that are here and cannot be watched.
    std::string page(MetricsFormat format, size_t unreachable, Time now);

 private:
    struct Step {
        std::string labels, user;
        wire::NodeMetrics metrics;
        bool is_known = false;
        bool has_started = false;  // it is in the histogram
        Time ended_at{};
    };
    struct Histogram {
        static constexpr std::array kBounds = {0.01, 0.025, 0.05, 0.1,  0.25, 0.5,   1.0,
                                               2.5,  5.0,   10.0, 30.0, 60.0, 120.0, 300.0};
        std::array<int64_t, kBounds.size() + 1> counts{};  // the last: of longer ones
        double sum = 0;
    };
    std::string version_;
    std::map<Connection, Step> present_;
    std::map<std::string, Step> ended_;  // by labels: a step that is requeued replaces itself
    Histogram startup_;
    std::map<std::string_view, int64_t> ends_ = {{"finished", 0}, {"failed", 0}, {"unknown", 0}};

    void note_startup(Step& step, bool is_over);
    void forget_old(Time now);
    void write_own(MetricsWriter& out, size_t unreachable) const;
};

}  // namespace dp
