// SPDX-License-Identifier: Apache-2.0
//
// A training's checkpoint directory. A crash at any moment leaves what is added whole or absent.
#pragma once

#include <filesystem>
#include <optional>
#include <set>

#include "trainer/checkpoint/manifest.hpp"

namespace dp::trainer {

// The path of a checkpoint, and its path while it is being written.
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
std::filesystem::path unfinished_path(const std::filesystem::path& directory, std::int64_t step);
// The step of a path that is named like a checkpoint.
std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& path);
// A rank's file in it.
std::string shard_name(std::int64_t rank, std::int64_t world);

// The steps of the checkpoints that are marked DONE, newest first.
std::vector<std::int64_t> checkpoints_in(const std::filesystem::path& directory);

// Turns an unfinished checkpoint that has all its shards into a checkpoint.
Result<void> publish(const std::filesystem::path& directory, const Manifest& manifest);
// Fault::checkpoint: this one is not what was written, but an older one may be whole.
tl::unexpected<Error> damaged(const std::filesystem::path& checkpoint, std::string_view what);
// What the user is told if no older one is whole. `others`: newer ones are damaged, too.
Error none_is_whole(const Error& damage, bool others);

// Checks it against its marker. An error is damaged(), or Fault::usage if this trainer cannot read it.
Result<Manifest> read_manifest(const std::filesystem::path& checkpoint);

// Removes all but the newest `count`, and those of the steps in `damaged`, which do not count.
void keep_newest(const std::filesystem::path& directory, std::int64_t count,
                 const std::set<std::int64_t>& damaged = {});
// Renames a damaged checkpoint to step-….damaged, for a person to look at. An error is the whole message.
Try<void> set_aside(const std::filesystem::path& directory, std::int64_t step);
// Clears away what a training that died was writing or removing. Returns a line for each.
std::vector<std::string> tidy(const std::filesystem::path& directory);

// A file that each rank writes there for a moment, so that rank 0 sees whether all mean the same directory.
std::filesystem::path presence_file(const std::filesystem::path& directory, std::int64_t rank);
// Fails with the ranks whose file is not there.
Result<void> check_presence(const std::filesystem::path& directory, std::int64_t world);

}  // namespace dp::trainer
