// SPDX-License-Identifier: Apache-2.0
//
// A file of a record, entry by entry. What is in it is untrusted: cut, foreign and hostile files end with a problem in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "record.pb.h"
#include "record/packing.hpp"

namespace dp {

// Longer than any step; a later time is rejected.
inline constexpr int64_t kLatestEntry = int64_t{400} * 86400 * 1000;  // ms

class RecordFile {
 public:
    // Fails if it cannot be read, or is no record.
    static Try<RecordFile> open(const std::string& path);

    // The next entry; nullptr at the end, or where nothing can be read any more. Valid until the next call.
    const record::Entry* next();
    // Why that was before the end of the file; "" if it was not.
    const std::string& problem() const { return problem_; }
    // The next entry is the first one again.
    void rewind();

 private:
    Fd file_;
    std::optional<RecordUnpacker> unpacker_;  // of all but the first line
    std::string packed_;
    size_t packed_taken_ = 0;  // of these
    std::string bytes_;
    size_t taken_ = 0;     // of these
    uint64_t offset_ = 0;  // of the first of these in the file, or in what it unpacks to
    bool is_at_end_ = false;
    int64_t last_ms_ = 0;
    record::Entry entry_;
    std::string problem_;

    size_t read_chunk(std::string& to);
    bool read_more();
    const record::Entry* end(const std::string& why);
};

}  // namespace dp
