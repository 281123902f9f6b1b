// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a checkpoint: a rank's part of all vectors in one file (manifest.hpp has the format), and
// any of them read back, whatever the number of ranks that wrote them. checkpointer.cpp calls it.
#ifndef TRAINER_CHECKPOINT_SHARD_HPP
#define TRAINER_CHECKPOINT_SHARD_HPP

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/sha256.hpp"

namespace dp::trainer {

// A vector of the training that is running: f32, whole on every rank.
struct Vector {
    std::string name;
    Tensor numbers;
    bool of_parameters;  // laid out as the parameters are, padding between them; else simply numbers
};

// Bytes of a rank's shard.
std::int64_t shard_bytes(const std::vector<StoredVector>& vectors, std::int64_t rank, std::int64_t world);

// Writes it durably; gives its SHA-256.
Result<Sha256::Digest> write_shard(const std::filesystem::path& file, const std::vector<Vector>& vectors,
                                   std::int64_t rank, std::int64_t world, Device& device);

// Whether a rank's shard is there, whole and undamaged. The error says all.
Result<void> verify_shard(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          std::int64_t rank);

// Fills the vectors from the shards. Of parameters' vectors only the parameters, from where they were then
// (Manifest::training) to where they are now.
Result<void> read_vectors(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          const std::vector<Place>& now, const std::vector<Vector>& vectors, Device& device);

}  // namespace dp::trainer

#endif
