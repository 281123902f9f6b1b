// SPDX-License-Identifier: Apache-2.0
//
// The options of the verbs that have few of their own; options.cpp adds them to each one's command.
#ifndef TRAINER_COMMANDS_VERBS_HPP
#define TRAINER_COMMANDS_VERBS_HPP

namespace CLI {
class App;
}

namespace dp::trainer {

struct GenerateOptions;
struct MeasureOptions;
struct ReportOptions;

void add_generate_options(CLI::App& verb, GenerateOptions& options);
void add_measure_options(CLI::App& verb, MeasureOptions& options);
void add_report_options(CLI::App& verb, ReportOptions& options);

}  // namespace dp::trainer

#endif
