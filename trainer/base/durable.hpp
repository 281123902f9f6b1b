// SPDX-License-Identifier: Apache-2.0
//
// Files that survive a crash of the machine, whole. They report a full disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// A file that is written sequentially.
class DurableFile {
 public:
    // An existing file is emptied.
    static Result<DurableFile> create(const std::filesystem::path& file);
    Result<void> write(const void* data, std::size_t bytes);
    // Syncs the contents to disk, but not the file's name: see make_durable().
    Result<void> finish();

 private:
    std::filesystem::path file_;
    Fd fd_;

    DurableFile(std::filesystem::path file, Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}
};

Result<void> write_durably(const std::filesystem::path& file, std::string_view text);

// Syncs what was created, renamed or removed in the directory.
Result<void> make_durable(const std::filesystem::path& directory);

}  // namespace dp::trainer
