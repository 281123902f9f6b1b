// SPDX-License-Identifier: Apache-2.0
//
// Files that are still there, and whole, after the machine has crashed. Of a full disk they tell.
#ifndef TRAINER_BASE_DURABLE_HPP
#define TRAINER_BASE_DURABLE_HPP

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// A file that is written from its beginning to its end.
class DurableFile {
 public:
    // An existing file is emptied.
    static Result<DurableFile> create(const std::filesystem::path& file);
    Result<void> write(const void* data, std::size_t bytes);
    // What was written is on the disk now; the file's name is not, see make_durable().
    Result<void> finish();

 private:
    std::filesystem::path file_;
    Fd fd_;

    DurableFile(std::filesystem::path file, Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}
};

Result<void> write_durably(const std::filesystem::path& file, std::string_view text);

// What has been made, renamed or removed in the directory stays so.
Result<void> make_durable(const std::filesystem::path& directory);

}  // namespace dp::trainer

#endif
