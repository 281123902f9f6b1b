// SPDX-License-Identifier: Apache-2.0
//
// A run's output file (--json, --dump-parameters and others), checked before the run, which may take days.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Checks without changing existing files or leaving new ones. `option`: its name, for the error.
Result<void> can_be_written(std::string_view option, const std::optional<std::filesystem::path>& file);
// The same for a directory, which would be created if missing.
Result<void> can_hold_files(std::string_view option, const std::optional<std::filesystem::path>& directory);

// Replaces the file. If that fails, nothing half-written stays.
Result<void> write_output(const std::filesystem::path& file, std::string_view contents);

}  // namespace dp::trainer
