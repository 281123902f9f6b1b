// SPDX-License-Identifier: Apache-2.0
//
// Directories that are created before it is certain that anything will be written there; if nothing is, they
// are removed again. For every option that names a directory.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace dp::trainer {

class MadeDirectories {
 public:
    MadeDirectories() = default;
    MadeDirectories(MadeDirectories&&) = default;
    MadeDirectories& operator=(MadeDirectories&&) = delete;
    // Removes the empty ones.
    ~MadeDirectories();

    // Creates it and its missing parents.
    std::error_code make(const std::filesystem::path& path);
    // Keeps them.
    void keep() { made_.clear(); }

 private:
    std::vector<std::filesystem::path> made_;  // the outermost first
};

}  // namespace dp::trainer
