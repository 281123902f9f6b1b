// SPDX-License-Identifier: Apache-2.0
//
// What is said of a record is said in the same words everywhere.
#include "dpctl/report.hpp"

#include "recorded.hpp"

namespace dp {
namespace {

TEST(Report, ThePagesWordsAreTheLedgers) {
    const std::string page = report_page({});
    for (const SpentWord& word : kSpentWords) {
        const std::string quote = std::string(word.meaning).find('\'') == std::string::npos ? "'" : "\"";
        EXPECT_NE(page.find("{ letter: '" + std::string(1, word.letter) + "', key: '" + word.name +
                            "', name: '" + word.title + "', means: " + quote + word.meaning + quote + " }"),
                  std::string::npos)
            << word.name;
    }
}

TEST(Report, DurationsAreReadable) {
    const std::pair<double, const char*> cases[] = {
        {0, "0 ms"},           {0.2499, "250 ms"},    {0.9999, "1.0 s"},      {12.34, "12.3 s"},
        {59.97, "1 min 00 s"}, {125.4, "2 min 05 s"}, {3599.6, "1 h 00 min"}, {3725, "1 h 02 min"},
        {273'600, "3 d 04 h"}, {-1, "0 ms"}};
    for (const auto& [seconds, words] : cases) EXPECT_EQ(duration_in_words(seconds), words) << seconds;
}

TEST(Report, TimesAreUtc) {
    EXPECT_EQ(utc_time(1'795'890'689'173), "2026-11-28T18:31:29.173Z");
    EXPECT_EQ(utc_time(-5), "1970-01-01T00:00:00.000Z");
    EXPECT_EQ(utc_time(INT64_MAX), "9999-12-31T23:59:59.999Z");
}

class ReportTest : public RecordTest {};

TEST_F(ReportTest, RunsOfOneJobAreToldTogether) {
    RecordedFile(folder, 0, 2).generation(0, 0, {0, 1}).end(1000);
    Report report;
    const Records all = records();
    for (int i = 0; i < 2; ++i) report.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
    const auto jobs = ledgers_of_jobs(report);
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].job_id, 12u);
    EXPECT_EQ(jobs[0].runs, 2u);
    EXPECT_DOUBLE_EQ(jobs[0].allocated, 4);
    report.runs.pop_back();
    EXPECT_TRUE(ledgers_of_jobs(report).empty());
    EXPECT_NE(ledger_text(report).find(
                  "goodput not known: no rank has said what it did (dp_phase); 2.0 s of task time"),
              std::string::npos)
        << ledger_text(report);
}

}  // namespace
}  // namespace dp
