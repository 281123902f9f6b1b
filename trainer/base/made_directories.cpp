// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/made_directories.hpp"

#include <chrono>
#include <thread>

namespace dp::trainer {

namespace fs = std::filesystem;

std::error_code MadeDirectories::make(const fs::path& path) {
    std::error_code error;
    std::vector<fs::path> missing;
    for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
        missing.push_back(at);
    error.clear();
    for (; !error && !missing.empty(); missing.pop_back())
        if (fs::create_directory(missing.back(), error)) made_.push_back(missing.back());
    std::error_code ignored;
    if (!error && fs::exists(path, ignored) && !fs::is_directory(path, ignored))
        return make_error_code(std::errc::not_a_directory);
    return error;
}

MadeDirectories::~MadeDirectories() {
    std::error_code error;
    if (!made_.empty()) fs::remove(made_.back(), error);
    if (error == std::errc::directory_not_empty) return;  // something has come of it
    // Another process may have its own directory inside an upper one; once it is gone, both are removed.
    for (int tries = 1; !made_.empty();) {
        fs::remove(made_.back(), error);
        if (error == std::errc::directory_not_empty && tries++ < 10)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        else
            made_.pop_back();
    }
}

}  // namespace dp::trainer
