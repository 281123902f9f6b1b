// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's numbers: a rank's part of all vectors in one file (manifest.hpp has the format). Any number
// of ranks can read them back.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "trainer/base/durable.hpp"
#include "trainer/base/sha256.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/placed_part.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// An f32 vector of the running training. A rank holds all of it, or at least its part in a checkpoint.
struct Vector {
    std::string name;
    Tensor numbers;
    bool of_parameters;      // laid out as the parameters are, with padding between them
    std::int64_t first = 0;  // where `numbers` begin in this rank's vector
    std::optional<std::int64_t> whole =
        {};  // elements of the whole model's vector; nullopt: `numbers` are all of it
    // Elements of this rank's vector: fewer where ranks divide the model.
    std::int64_t of_rank = whole.value_or(numbers.elements());

    std::int64_t elements() const { return whole.value_or(numbers.elements()); }
    // The numbers [from, from + count) of this rank's vector, all of which it holds.
    Tensor part(std::int64_t from, std::int64_t count) const { return numbers.view(from - first, {count}); }
};

// The size of a rank's shard in bytes.
std::int64_t shard_bytes(const std::vector<StoredVector>& vectors, std::int64_t rank, std::int64_t world);

struct WrittenShard {
    Sha256::Digest digest;
    bool is_finite;  // nothing in it is NaN or infinite
};

class GatheredNumbers;

// Writes a rank's shard durably. `gathered`: where ranks divide the model; then all of the world call, and come back together.
Result<WrittenShard> write_shard(const std::filesystem::path& file, const std::vector<Vector>& vectors,
                                 std::int64_t rank, std::int64_t world, Device& device,
                                 GatheredNumbers* gathered = nullptr);

// The same in two parts. First all numbers of the shard are copied to the host, in the place of what `to` had; as with write_shard(), all
// call where ranks divide the model. Then a thread beside the training writes them; asked to stop, it leaves the file unfinished.
Result<void> copy_shard(const std::vector<Vector>& vectors, std::int64_t rank, std::int64_t world,
                        Device& device, GatheredNumbers* gathered, std::vector<float>& to);
Result<WrittenShard> write_copied_shard(DurableFile out, std::span<const float> numbers,
                                        const std::stop_token& stop);

// Checks that a rank's shard is complete and undamaged. An error is damaged().
Result<void> verify_shard(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          std::int64_t rank);

// The values of the parameter that the manifest has in this place, or their average ("ema") if it is not frozen.
Result<std::vector<float>> read_parameter(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                          std::size_t number, std::string_view vector = "values");

// Fills this rank's part of the vectors from the shards. For vectors laid out like the parameters, moves each
// parameter, or the part of it that is here, from its old place (Manifest::training) to its current one.
Result<void> read_vectors(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          const std::vector<PlacedPart>& now, const std::vector<Vector>& vectors,
                          Device& device);

}  // namespace dp::trainer
