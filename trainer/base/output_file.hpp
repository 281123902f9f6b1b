// SPDX-License-Identifier: Apache-2.0
//
// A file that a run leaves (--json, --dump-parameters and others). Whether it can be written is asked before
// the run, which may take days. run.cpp calls it, and `trainer compile` for its summary.
#ifndef TRAINER_BASE_OUTPUT_FILE_HPP
#define TRAINER_BASE_OUTPUT_FILE_HPP

#include <filesystem>
#include <optional>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// These leave what is there as it is, and nothing that was not. Without a file there is nothing to ask.
// `option`: its name, for the error.
Result<void> can_be_written(std::string_view option, const std::optional<std::filesystem::path>& file);
// Of a directory that is made where it is missing.
Result<void> can_hold_files(std::string_view option, const std::optional<std::filesystem::path>& directory);

// In place of what was there. Where that fails nothing half-written stays.
Result<void> write_output(const std::filesystem::path& file, std::string_view contents);

}  // namespace dp::trainer

#endif
