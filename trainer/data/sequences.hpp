// SPDX-License-Identifier: Apache-2.0
//
// Samples of tokens that are read when they are needed. tokens.cpp makes them, DeviceSamples reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

class Sequences {
 public:
    virtual ~Sequences() = default;

    // Reads a sample: its tokens and the one after them. Threads may read at the same time.
    virtual Result<void> read(std::int64_t sample, std::span<Token> to) const = 0;
    // The sample is read soon.
    virtual void expect(std::int64_t sample) const = 0;
};

// A part of a stream, cut into sequences.
class StreamSequences final : public Sequences {
 public:
    // From token `first` on.
    StreamSequences(std::shared_ptr<const TokenStream> stream, std::int64_t first, std::int64_t sequence)
        : stream_(std::move(stream)), first_(first), sequence_(sequence) {}

    Result<void> read(std::int64_t sample, std::span<Token> to) const override {
        return stream_->read(first_ + sample * sequence_, to);
    }
    void expect(std::int64_t sample) const override {
        stream_->expect(first_ + sample * sequence_, sequence_ + 1);
    }

 private:
    std::shared_ptr<const TokenStream> stream_;
    std::int64_t first_, sequence_;
};

class StoredImages;  // stored_images.hpp

// One of the two is there.
struct StreamedRows {
    std::shared_ptr<const Sequences> rows;
    std::shared_ptr<const StoredImages> images = {};
    std::int64_t bytes = 0;            // that the matrix would have
    std::vector<std::uint8_t> spread;  // pieces_of() them, for the fingerprint
};

// The pieces, as their first byte and their length, of so many bytes that a fingerprint is made of.
std::vector<std::pair<std::int64_t, std::int64_t>> pieces_of(std::int64_t size, bool is_read);

}  // namespace dp::trainer
