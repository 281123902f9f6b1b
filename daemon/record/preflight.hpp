// SPDX-License-Identifier: Apache-2.0
//
// What --dp-preflight has found on a node, as its record says. Pure.
#pragma once

#include <string>
#include <vector>

#include "record.pb.h"

namespace dp {

// Findings, and measures, of a node.
inline constexpr size_t kMostFindings = 200, kMostMeasures = 200;

struct RecordedPreflight {
    struct Measure {
        std::string name;
        double value = 0;
        std::string unit;
    };
    double seconds = 0;
    record::Preflight::Verdict verdict = record::Preflight::FIT;
    std::vector<std::string> findings;
    std::vector<Measure> measures;

    // What is said later of the same node: its links are measured last. Untrusted.
    void add(const record::Preflight& said);
};

// "fit", "fit, with remarks", "not fit".
const char* in_words(record::Preflight::Verdict verdict);

}  // namespace dp
