// SPDX-License-Identifier: Apache-2.0
//
// The directory that `trainer prepare` fills: of all processes that would fill it one has it at a time, and
// where nothing comes of it, it is not there afterwards unless it was before. prepare.cpp opens it.
#pragma once

#include <filesystem>

#include "base/fd.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

class OutputDirectory {
 public:
    // Makes it and what is missing above it, and waits until no other process has it. The kernel lets go of
    // it whatever ends this process.
    static Result<OutputDirectory> open(const std::filesystem::path& path);

    OutputDirectory(OutputDirectory&&) = default;
    OutputDirectory& operator=(OutputDirectory&&) = delete;

    // It is filled.
    void keep() { made_.keep(); }

 private:
    OutputDirectory() = default;
    Fd lock_;
    MadeDirectories made_;  // removed before the lock is
};

}  // namespace dp::trainer
