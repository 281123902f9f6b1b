// SPDX-License-Identifier: Apache-2.0
//
// The rows of all options: what the command line is made of, and what ranks and `trainer compile` go by.
#pragma once

#include <string>

#include "trainer/command_line/option_list.hpp"
#include "trainer/commands/options.hpp"

namespace dp::trainer {

// Each row fills a field of what it is given, which must outlive the list.
OptionList training_options(Options& options);
OptionList compile_options(CacheOptions& options);
OptionList info_options(InfoOptions& options);
OptionList measure_options(MeasureOptions& options);
OptionList prepare_options(PrepareOptions& options);
OptionList report_options(ReportOptions& options);
OptionList generate_options(GenerateOptions& options);

// What stands below the options of `prepare` in its help.
std::string prepare_footer();

}  // namespace dp::trainer
