// SPDX-License-Identifier: Apache-2.0
//
// Reads, writes and hashes whole files, with errors for users. For code that reads and writes data sets.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// Opens a regular file to read. An error is the reason alone. Anything else is refused: to open a pipe would
// wait for a writer.
Try<Fd> open_regular(const std::filesystem::path& file);

Result<std::string> read_file(const std::filesystem::path& file);
// The contents are on disk when it returns, so a full disk is noticed here.
Result<void> write_file(const std::filesystem::path& file, std::string_view contents);

// SHA-256, as sha256sum prints it.
std::string sha256(std::string_view bytes);
Result<std::string> sha256_of_file(const std::filesystem::path& file);

// Refuses a file that is missing or has another hash; `how`: the command that fetches the right one.
Result<void> check_hash(const std::filesystem::path& file, std::string_view expected, std::string_view how);

}  // namespace dp::trainer
