// SPDX-License-Identifier: Apache-2.0
//
// A directory for a test's files, gone with it.
#ifndef TESTS_UNIT_TRAINER_TEMPORARY_DIRECTORY_HPP
#define TESTS_UNIT_TRAINER_TEMPORARY_DIRECTORY_HPP

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace dp::trainer {

class TemporaryDirectory {
 public:
    TemporaryDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "trainer-test-XXXXXX").string();
        path_ = mkdtemp(name.data()) == nullptr ? "" : name;
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
    const std::filesystem::path& path() const { return path_; }

    // Makes the directories above it, too.
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name) << text;
    }

 private:
    std::filesystem::path path_;
};

inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace dp::trainer

#endif
