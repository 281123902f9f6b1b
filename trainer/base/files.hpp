// SPDX-License-Identifier: Apache-2.0
//
// Reads, writes and hashes whole files, with errors for users. For code that reads and writes data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// Opens a regular file to read, and nothing else: a pipe waits for a writer. An error is the reason alone.
Try<Fd> open_regular(const std::filesystem::path& file);
// Reads exactly `count` bytes from `at` on. An error is the reason alone, such as "cut short".
Try<void> read_at(const Fd& file, std::int64_t at, void* to, std::size_t count);

// A regular file and its size, for who reads parts of it. An error is a line.
struct SizedFile {
    Fd file;
    std::int64_t bytes = 0;
};
Result<SizedFile> open_sized(const std::filesystem::path& file);

// The paths of what is in a directory; none if it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

Result<std::string> read_file(const std::filesystem::path& file);
// The contents are on disk when it returns, so a full disk is noticed here.
Result<void> write_file(const std::filesystem::path& file, std::string_view contents);

// SHA-256, as sha256sum prints it.
std::string sha256(std::string_view bytes);
Result<std::string> sha256_of_file(const std::filesystem::path& file);

// Refuses a file that is missing or has another hash; `how`: the command that fetches the right one.
Result<void> check_hash(const std::filesystem::path& file, std::string_view expected, std::string_view how);

}  // namespace dp::trainer
