// SPDX-License-Identifier: Apache-2.0
#include "record/preflight.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "record/entries.hpp"
#include "record/file.hpp"

namespace dp {

void RecordedPreflight::add(const record::Preflight& said) {
    seconds = std::max(seconds,
                       static_cast<double>(std::clamp<int64_t>(said.duration_ms(), 0, kLatestEntry)) / 1000);
    if (record::Preflight::Verdict_IsValid(said.verdict())) verdict = std::max(verdict, said.verdict());
    for (const auto& finding : said.findings())
        if (findings.size() < kMostFindings) findings.push_back(printable(finding, kMaxRecordText));
    for (const auto& measure : said.measures())
        if (measures.size() < kMostMeasures && std::isfinite(measure.value()))
            measures.push_back({printable(measure.name()), measure.value(), printable(measure.unit())});
}

const char* in_words(record::Preflight::Verdict verdict) {
    return verdict == record::Preflight::UNFIT     ? "not fit"
           : verdict == record::Preflight::REMARKS ? "fit, with remarks"
                                                   : "fit";
}

}  // namespace dp
