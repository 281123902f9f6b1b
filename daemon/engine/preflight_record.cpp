// SPDX-License-Identifier: Apache-2.0
#include "engine/preflight_record.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "findings/comparison.hpp"
#include "record/preflight.hpp"

namespace dp {
namespace {

constexpr size_t kMaxFinding = 300;  // bytes

using Verdict = record::Preflight::Verdict;

Verdict verdict_of(wire::NodeExamination::Level level) {
    return level == wire::NodeExamination::FAULT     ? record::Preflight::UNFIT
           : level == wire::NodeExamination::WARNING ? record::Preflight::REMARKS
                                                     : record::Preflight::FIT;
}

void add_finding(record::Preflight& preflight, Verdict verdict, const std::string& text) {
    if (verdict == record::Preflight::FIT || preflight.findings_size() >= static_cast<int>(kMostFindings))
        return;
    preflight.set_verdict(std::max(preflight.verdict(), verdict));
    preflight.add_findings(printable(text, kMaxFinding));
}

void add_measure(record::Preflight& preflight, const std::string& name, double value, std::string_view unit) {
    auto& measure = *preflight.add_measures();
    measure.set_name(printable(name));
    measure.set_value(value);
    measure.set_unit(std::string(unit));
}

}  // namespace

record::Entry preflight_entry(const wire::NodeExamination& found, std::chrono::milliseconds took) {
    record::Entry entry;
    auto& preflight = *entry.mutable_preflight();
    preflight.set_duration_ms(took.count());
    if (!found.problem().empty())
        add_finding(preflight, record::Preflight::REMARKS, "not examined: " + found.problem());
    for (const auto& topic : found.topics())
        for (const auto& finding : topic.findings())
            add_finding(preflight, verdict_of(finding.level()), finding.check() + ": " + finding.seen());
    for (const auto& measure : found.measures())
        if (preflight.measures_size() < static_cast<int>(kMostMeasures))
            add_measure(preflight, measure.name(), measure.value() / 1e9,
                        doctor::giga_unit_of(measure.name()));
    return entry;
}

record::Entry preflight_entry(const wire::MeasuredLink& link, const std::string& partner,
                              std::chrono::milliseconds took) {
    record::Entry entry;
    auto& preflight = *entry.mutable_preflight();
    preflight.set_duration_ms(took.count());
    const std::string name = "link with " + printable(partner, 60);
    if (!link.problem().empty()) {
        add_finding(preflight, record::Preflight::REMARKS, name + ": " + link.problem());
        return entry;
    }
    add_measure(preflight, name + ", there", link.there() / 1e9, "GB/s");
    add_measure(preflight, name + ", back", link.back() / 1e9, "GB/s");
    add_measure(preflight, name + ", round trip", link.round_trip() * 1e6, "us");
    return entry;
}

}  // namespace dp
