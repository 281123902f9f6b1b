// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a checkpoint: a rank's part of all vectors in one file (manifest.hpp has the format), and
// any of them read back, whatever the number of ranks that wrote them. checkpointer.cpp calls it.
#ifndef TRAINER_CHECKPOINT_SHARD_HPP
#define TRAINER_CHECKPOINT_SHARD_HPP

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/sha256.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// A vector of the training that is running: f32. A rank holds all of it, or at least its part of a
// checkpoint's.
struct Vector {
    std::string name;
    Tensor numbers;
    bool of_parameters;      // laid out as the parameters are, padding between them; else simply numbers
    std::int64_t first = 0;  // where `numbers` begin in the vector
    std::optional<std::int64_t> whole = {};  // numbers of the vector; nullopt: `numbers` are all of it

    std::int64_t elements() const { return whole.value_or(numbers.elements()); }
    // The numbers [from, from + count) of the vector, which this rank holds.
    Tensor part(std::int64_t from, std::int64_t count) const { return numbers.view(from - first, {count}); }
};

// Bytes of a rank's shard.
std::int64_t shard_bytes(const std::vector<StoredVector>& vectors, std::int64_t rank, std::int64_t world);

struct WrittenShard {
    Sha256::Digest digest;
    bool is_finite;  // nothing in it is infinite or no number
};

// Writes it durably.
Result<WrittenShard> write_shard(const std::filesystem::path& file, const std::vector<Vector>& vectors,
                                 std::int64_t rank, std::int64_t world, Device& device);

// Whether a rank's shard is there, whole and undamaged. The error says all.
Result<void> verify_shard(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          std::int64_t rank);

// Fills the vectors from the shards, as far as this rank holds them. Of parameters' vectors only the
// parameters, from where they were then (Manifest::training) to where they are now.
Result<void> read_vectors(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          const std::vector<Place>& now, const std::vector<Vector>& vectors, Device& device);

}  // namespace dp::trainer

#endif
