// SPDX-License-Identifier: Apache-2.0
//
// The directory of a training's checkpoints: what lies there, and how something is put there so that a crash
// at any moment leaves it whole or not there. checkpointer.cpp calls it.
#ifndef TRAINER_CHECKPOINT_DIRECTORY_HPP
#define TRAINER_CHECKPOINT_DIRECTORY_HPP

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/checkpoint/manifest.hpp"

namespace dp::trainer {

// Where a checkpoint is, and where it is while it is being written.
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
std::filesystem::path unfinished_path(const std::filesystem::path& directory, std::int64_t step);
// A rank's file in it.
std::string shard_name(std::int64_t rank, std::int64_t world);

// The steps of the checkpoints there, the newest first: of those that are marked DONE.
std::vector<std::int64_t> checkpoints_in(const std::filesystem::path& directory);

// Makes an unfinished checkpoint, with all its shards in place, a checkpoint.
Result<void> publish(const std::filesystem::path& directory, const Manifest& manifest);
// Reads the manifest of a checkpoint and checks it against its marker. The error says all.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);

// Removes all checkpoints but so many of the newest. What cannot be removed stays.
void keep_newest(const std::filesystem::path& directory, std::int64_t count);
// Removes what a training that died has left unfinished.
void tidy(const std::filesystem::path& directory);

// A file that each rank leaves in the directory for a moment, for rank 0 to see whether all mean the same
// one.
std::filesystem::path presence_file(const std::filesystem::path& directory, std::int64_t rank);
// An error that names the ranks of the world whose file is not there.
Result<void> check_presence(const std::filesystem::path& directory, std::int64_t world);

}  // namespace dp::trainer

#endif
