// SPDX-License-Identifier: Apache-2.0
//
// A directory of a cache that many processes want at the same time, on many nodes: one makes it, the others wait and take what it made,
// or its error. corpus.cpp keeps tokens so. Unlike output_directory.hpp it is nobody's own: what is not whole is made anew.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Has `make` fill a new directory, whose line for a person it returns, and moves it to `directory` as a whole, with a prepared.json that
// has `from`. If it is there already, `make` is not called. Returns the line. Waits for another process as long as its lock is held,
// at most `longest`; where a file system does not tell other nodes of locks, they do the work, too, and the first one's counts. May
// throw filesystem_error.
Result<std::string> made_once(const std::filesystem::path& directory, const std::string& from,
                              const std::function<Result<std::string>(const std::filesystem::path&)>& make,
                              std::chrono::minutes longest);

}  // namespace dp::trainer
