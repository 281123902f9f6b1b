// SPDX-License-Identifier: Apache-2.0
//
// A directory that several processes may want to fill at the same time: one does, and the others wait. prepare.cpp and corpus.cpp fill
// theirs so.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Makes the files below `result`, with room for others below `scratch`, and returns the line for a person.
using MakeFiles = std::function<Result<std::string>(const std::filesystem::path& scratch,
                                                    const std::filesystem::path& result)>;

// npm and the longest text together take minutes.
inline constexpr auto kLongestPreparation = std::chrono::minutes(30);

// The directory has either all files or none; where it was not there it is not there after an error. If it has them of the same
// `from` (PreparedData) they are not made again. Returns the line. May throw filesystem_error.
Result<std::string> fill_directory(const std::filesystem::path& output, const std::string& from,
                                   const MakeFiles& make, std::chrono::minutes longest = kLongestPreparation);

}  // namespace dp::trainer
