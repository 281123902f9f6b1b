// SPDX-License-Identifier: Apache-2.0
//
// `dp-rendezvousd write-record FILE`, which the daemon runs with --dp-record (record_writer.hpp): the same program, because it starts
// soonest, and exists whatever file system the task sees.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace dp {

// When what is written is brought to the disk: at once, but not twice within kSyncEvery, nor before the record is that old, because the
// ranks start meanwhile. That is as much as is lost with the machine.
class SyncTimes {
 public:
    using Time = std::chrono::steady_clock::time_point;
    static constexpr std::chrono::milliseconds kSyncEvery{500};

    void written(Time now) {
        if (!due_) due_ = std::max(now, last_.value_or(now) + kSyncEvery);
    }
    void synced(Time now) {
        last_ = now;
        due_.reset();
    }
    // From now until then; nothing while all is there.
    std::optional<std::chrono::milliseconds> wait(Time now) const {
        if (!due_) return std::nullopt;
        return std::chrono::ceil<std::chrono::milliseconds>(std::max(*due_, now) - now);
    }

 private:
    std::optional<Time> last_, due_;
};

// Standard input, a record's entries, goes to this new file, packed behind kRecordMagic (record/packing.hpp), in folders that are
// made. Returns the exit code: 1, with a line on standard output, if it cannot be written.
int write_record(const std::string& file);

}  // namespace dp
