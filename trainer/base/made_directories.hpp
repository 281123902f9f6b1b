// SPDX-License-Identifier: Apache-2.0
//
// Directories that are made before it is sure that anything will be written there: where nothing comes of it,
// they go again. For whatever has an option that names a directory.
#ifndef TRAINER_BASE_MADE_DIRECTORIES_HPP
#define TRAINER_BASE_MADE_DIRECTORIES_HPP

#include <filesystem>
#include <system_error>
#include <vector>

namespace dp::trainer {

class MadeDirectories {
 public:
    MadeDirectories() = default;
    MadeDirectories(MadeDirectories&&) = default;
    MadeDirectories& operator=(MadeDirectories&&) = delete;
    // Removes those that are empty.
    ~MadeDirectories();

    // Makes it and what is missing above it.
    std::error_code make(const std::filesystem::path& path);
    // They stay.
    void keep() { made_.clear(); }

 private:
    std::vector<std::filesystem::path> made_;  // the outermost first
};

}  // namespace dp::trainer

#endif
