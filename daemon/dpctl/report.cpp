// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report` and `dpctl ledger`: what a record says.
#include "dpctl/report.hpp"

#include <google/protobuf/stubs/logging.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "dpctl/site_records.hpp"

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

int write_page(const Report& report, const std::string& path) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << report_page(report);
    file.close();
    if (file) return 0;
    return complain(printable(path) + ": " + errno_text(errno));
}

}  // namespace

int show_report(const ReportOptions& options) {
    const auto report = read_report(options.places);
    if (!report) return complain(report.error().message);
    if (!options.html.empty()) return write_page(*report, options.html);
    return print(options.json ? report_json(*report) : report_text(*report));
}

int show_ledger(const LedgerOptions& options) {
    const auto report = read_report(options.places);
    if (!report) return complain(report.error().message);
    return print(options.json ? ledger_json(*report) : ledger_text(*report));
}

}  // namespace dp
