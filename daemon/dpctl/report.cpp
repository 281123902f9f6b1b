// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report` and `dpctl ledger`: what a record says.
#include "dpctl/report.hpp"

#include <google/protobuf/stubs/logging.h>

#include <ostream>

#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "dpctl/site_records.hpp"
#include "dpctl/whole_file.hpp"

namespace dp {
namespace {

Try<Report> read_report(const RecordPlaces& places) {
    // It would print lines of its own about a damaged file.
    google::protobuf::SetLogHandler(nullptr);
    std::vector<std::string> paths = places.paths;
    if (places.job != 0) paths = DP_TRY(records_of_job(places.job));
    Records records = DP_TRY(read_records(paths));
    Report report;
    report.problems = std::move(records.problems);
    for (RecordedRun& run : records.runs) {
        Timeline timeline = DP_TRY(read_timeline(run, records.runs.size()));
        report.runs.push_back({std::move(run), std::move(timeline)});
    }
    return report;
}

Try<void> write_page_to(const std::string& path, const Report& report) {
    return write_whole_file(path, [&](std::ostream& out) -> Try<void> {
        out << report_page(report);
        return {};
    });
}

Try<void> write_trace_to(const std::string& path, const Report& report) {
    std::vector<std::string> missing = report.problems;
    const auto written = write_whole_file(path, [&](std::ostream& out) -> Try<void> {
        const auto left_out = DP_TRY(write_trace(report, out));
        missing.insert(missing.end(), left_out.begin(), left_out.end());
        return {};
    });
    if (written)
        for (const std::string& line : missing) complain(line);
    return written;
}

}  // namespace

int show_report(const ReportOptions& options) {
    const auto report = read_report(options.places);
    if (!report) return complain(report.error().message);
    if (options.html.empty() && options.trace.empty())
        return print(options.json ? report_json(*report) : report_text(*report));
    const auto written =
        options.trace.empty() ? write_page_to(options.html, *report) : write_trace_to(options.trace, *report);
    return written ? 0 : complain(written.error().message);
}

int show_ledger(const LedgerOptions& options) {
    const auto report = read_report(options.places);
    if (!report) return complain(report.error().message);
    return print(options.json ? ledger_json(*report) : ledger_text(*report));
}

}  // namespace dp
