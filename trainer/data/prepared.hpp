// SPDX-License-Identifier: Apache-2.0
//
// prepared.json, which `trainer prepare` leaves in a directory: what it was made from, and the SHA-256 of
// each file. From it `prepare` knows that its work is done, and a training that the data is unchanged.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct PreparedData {
    std::string from;                          // what determines the files: equal ones need not be made again
    std::string summary;                       // for people: what there is
    std::map<std::string, std::string> files;  // name → SHA-256
};

inline constexpr const char* kPreparedFile = "prepared.json";

// Nothing if there is none.
Result<std::optional<PreparedData>> read_prepared(const std::filesystem::path& directory);
// Covers all files in the directory.
Result<PreparedData> write_prepared(const std::filesystem::path& directory, std::string from,
                                    std::string summary);
// Checks that each file of a prepared directory is unchanged. A directory that `prepare` did not make passes.
Result<void> check_prepared(const std::filesystem::path& directory);

}  // namespace dp::trainer
