// SPDX-License-Identifier: Apache-2.0
//
// A lock on --checkpoint-dir, of rank 0: two trainings that save there would remove each other's unfinished
// checkpoints and mix their shards.
//
// A file lock refuses the second training at once, on file systems that have such locks. NFS has none, and a
// lock that reached all nodes could outlive its node and keep out the very training that is to resume. So the
// directory also holds a file that names its training: a later training replaces it, and the earlier one,
// which finds it changed before its next save, ends. What a crash leaves behind blocks nobody. Neither does a rank 0
// that stands still with its node while the step goes on elsewhere: its successor takes the directory over.
#pragma once

#include <memory>

#include "base/fd.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

inline constexpr const char* kClaimFile = ".training";

class DirectoryLock {
 public:
    // Creates the directory if needed. Fails if another training has it. `succeeds`: rank 0 of an earlier generation of
    // this step may still have it.
    static Result<std::unique_ptr<DirectoryLock>> make(const std::filesystem::path& directory,
                                                       bool succeeds = false);
    // Removes the claim, and a directory that it created if nothing was saved there.
    ~DirectoryLock();
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;

    // Fails if another training has taken over: then nothing may be written there any more.
    Result<void> check() const;

 private:
    std::filesystem::path directory_;
    std::string words_;  // what the file says while the directory is this training's
    Fd locked_;          // empty where the directory cannot be locked
    MadeDirectories made_;

    DirectoryLock(const std::filesystem::path& directory, std::string words, Fd locked, MadeDirectories made)
        : directory_(directory),
          words_(std::move(words)),
          locked_(std::move(locked)),
          made_(std::move(made)) {}
};

}  // namespace dp::trainer
