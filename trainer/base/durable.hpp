// SPDX-License-Identifier: Apache-2.0
//
// Files that survive a crash of the machine, whole. They report a full disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// A file that is written sequentially.
class DurableFile {
 public:
    // An existing file is emptied. `fault` is that of all errors.
    static Result<DurableFile> create(const std::filesystem::path& file, Fault fault = Fault::checkpoint);
    Result<void> write(const void* data, std::size_t bytes);
    // Syncs the contents to disk, but not the file's name: see make_durable().
    Result<void> sync();
    // The same, and closes it.
    Result<void> finish();

 private:
    std::filesystem::path file_;
    Fault fault_;
    Fd fd_;

    DurableFile(const std::filesystem::path& file, Fault fault);
    tl::unexpected<Error> cannot_write() const;
};

Result<void> write_durably(const std::filesystem::path& file, std::string_view text,
                           Fault fault = Fault::checkpoint);

// Syncs what was created, renamed or removed in the directory.
Result<void> make_durable(const std::filesystem::path& directory);

}  // namespace dp::trainer
