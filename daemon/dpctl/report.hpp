// SPDX-License-Identifier: Apache-2.0
//
// What `dpctl report` and `dpctl ledger` say of a record: as text, as JSON, and as a page. Pure.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "record/details.hpp"
#include "record/run.hpp"
#include "record/timeline.hpp"

namespace dp {

struct ReportedRun {
    RecordedRun run;
    Timeline timeline;
};
struct Report {
    std::vector<ReportedRun> runs;
    std::vector<std::string> problems;
};

// A job's runs together, if there are several.
struct JobLedger {
    uint32_t job_id = 0;
    size_t runs = 0;
    SpentTimes ledger{};
    double allocated = 0;
};
std::vector<JobLedger> ledgers_of_jobs(const Report& report);

// "3 d 04 h", "1 h 02 min", "2 min 05 s", "12.3 s", "250 ms".
std::string duration_in_words(double seconds);
// "2026-11-28T18:00:01.250Z"
std::string utc_time(int64_t unix_ms);
// "launch 4711" or "step 12.0".
std::string name_of(const RecordedRun& run);

std::string report_text(const Report& report);
std::string ledger_text(const Report& report);
// packaging/schemas/report.schema.json describes both.
std::string report_json(const Report& report);
std::string ledger_json(const Report& report);
// For Perfetto or Chrome (report_trace.cpp): single phases of the ranks where the record has them, who waited for whom, starts, restarts,
// hangs, memory, and what the user was told. Reads the records again. Returns what is left out, in lines for the user.
Try<std::vector<std::string>> write_trace(const Report& report, std::ostream& out);
// The report's JSON within a page that draws it (report_page.html).
std::string report_page(const Report& report);

}  // namespace dp
