// SPDX-License-Identifier: Apache-2.0
//
// A training's claim to its --checkpoint-dir: one training at a time saves itself there, because two would
// remove each other's unfinished checkpoints and mix their shards. checkpointer.cpp makes one on rank 0.
//
// A lock on the directory refuses the second one at once, wherever the file system has such locks. NFS has
// none, and a lock there that reached all nodes could outlive its node and keep out the very training that
// is to go on. So the directory also holds a file that names its training: who comes later writes a new one,
// and the earlier training, which finds it changed before its next save, ends. What a crash leaves of either
// is in nobody's way.
#ifndef TRAINER_CHECKPOINT_CLAIM_HPP
#define TRAINER_CHECKPOINT_CLAIM_HPP

#include <filesystem>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

inline constexpr const char* kClaimFile = ".training";

class Claim {
 public:
    // Makes the directory where it is missing. An error where another training has it.
    static Result<std::unique_ptr<Claim>> make(const std::filesystem::path& directory);
    // Leaves nothing of it in the directory, and no directory that it has made and nothing was saved in.
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // An error where another training has come since then: nothing may be written there any more.
    Result<void> check() const;

 private:
    std::filesystem::path directory_;
    std::string words_;  // what the file says while the directory is this training's
    Fd locked_;          // empty where the directory cannot be locked
    MadeDirectories made_;

    Claim(std::filesystem::path directory, std::string words, Fd locked, MadeDirectories made);
};

}  // namespace dp::trainer

#endif
