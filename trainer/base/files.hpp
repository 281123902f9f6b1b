// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out, and the hash by which one is known, with the line that a person gets where that
// fails. What reads and writes data sets calls it.
#ifndef TRAINER_BASE_FILES_HPP
#define TRAINER_BASE_FILES_HPP

#include <filesystem>
#include <string>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

Result<std::string> read_file(const std::filesystem::path& file);
// On disk, not only with the kernel, when it returns: a full disk is noticed here.
Result<void> write_file(const std::filesystem::path& file, std::string_view contents);

// SHA-256, as sha256sum prints it.
std::string sha256(std::string_view bytes);
Result<std::string> sha256_of_file(const std::filesystem::path& file);

// Refuses a file that is missing or another one; `how`: the command that brings the right one.
Result<void> check_hash(const std::filesystem::path& file, std::string_view expected, std::string_view how);

}  // namespace dp::trainer

#endif
