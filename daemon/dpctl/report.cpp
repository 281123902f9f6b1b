// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report` and `dpctl ledger`: what a record says.
#include "dpctl/report.hpp"

#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
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

// What `write` leaves half written is removed; only a file is, and not /dev/stdout.
Try<void> write_file(const std::string& path, const auto& write) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    if (!file) return fail(printable(path) + ": " + errno_text(errno));
    Try<void> written;
    try {
        file.exceptions(std::ios::badbit | std::ios::failbit);
        written = write(file);
        file.close();
    } catch (const std::ios::failure&) {
        written = fail(printable(path) + ": " + errno_text(errno));
    }
    std::error_code ignored;
    if (!written && std::filesystem::is_regular_file(path, ignored)) unlink(path.c_str());
    return written;
}

Try<void> write_page_to(const std::string& path, const Report& report) {
    return write_file(path, [&](std::ostream& out) -> Try<void> {
        out << report_page(report);
        return {};
    });
}

Try<void> write_trace_to(const std::string& path, const Report& report) {
    std::vector<std::string> missing = report.problems;
    const auto written = write_file(path, [&](std::ostream& out) -> Try<void> {
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
