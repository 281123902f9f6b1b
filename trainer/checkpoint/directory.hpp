// SPDX-License-Identifier: Apache-2.0
//
// A training's checkpoint directory: what is there, and how to add something so that a crash at any moment
// leaves it whole or absent. Called by checkpointer.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/checkpoint/manifest.hpp"

namespace dp::trainer {

// The path of a checkpoint, and its path while it is being written.
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
std::filesystem::path unfinished_path(const std::filesystem::path& directory, std::int64_t step);
// A rank's file in it.
std::string shard_name(std::int64_t rank, std::int64_t world);

// The steps of the checkpoints that are marked DONE, newest first.
std::vector<std::int64_t> checkpoints_in(const std::filesystem::path& directory);

// Turns an unfinished checkpoint, with all its shards in place, into a checkpoint.
Result<void> publish(const std::filesystem::path& directory, const Manifest& manifest);
// A checkpoint that is not what was written. Its fault is Fault::checkpoint: an older one may be whole.
tl::unexpected<Error> damaged(const std::filesystem::path& checkpoint, std::string_view what);
// Of Fault::checkpoint: what the user is told where no older one is whole. `others`: newer ones are damaged,
// too.
Error none_is_whole(const Error& damage, bool others);

// Reads the manifest of a checkpoint and checks it against its marker. An error is damaged(), or Fault::usage
// of a checkpoint that this trainer cannot read.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);

// Removes all checkpoints except the newest `count`. What cannot be removed stays.
void keep_newest(const std::filesystem::path& directory, std::int64_t count);
// Takes a damaged checkpoint out of the way, which keeps it for a person to look at.
void set_aside(const std::filesystem::path& directory, std::int64_t step);
// Removes what a training that died has left: half a checkpoint that it wrote or removed.
void tidy(const std::filesystem::path& directory);

// A file that each rank leaves there for a moment, so that rank 0 sees whether all mean the same directory.
std::filesystem::path presence_file(const std::filesystem::path& directory, std::int64_t rank);
// Fails with the ranks whose file is not there.
Result<void> check_presence(const std::filesystem::path& directory, std::int64_t world);

}  // namespace dp::trainer
