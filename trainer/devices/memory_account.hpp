// SPDX-License-Identifier: Apache-2.0
//
// How much memory a device has given out or taken for its workspaces, and its limit (--memory-limit), which
// lets users try a smaller device. Used by Device::make().
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace dp::trainer {

// All in bytes.
class MemoryAccount {
 public:
    void set_limit(std::int64_t bytes) { limit_ = bytes; }

    bool may_take(std::int64_t bytes) const { return !limit_ || bytes <= *limit_ - held_; }
    // After the allocation: one that fails leaves the peak as it is.
    void take(std::int64_t bytes) {
        held_ += bytes;
        peak_ = std::max(peak_, held_);
    }
    void give_back(std::int64_t bytes) { held_ -= bytes; }

    std::int64_t held() const { return held_; }
    std::int64_t peak() const { return peak_; }
    std::optional<std::int64_t> limit() const { return limit_; }

    // Records that an allocation failed, for lack of memory or because of the limit.
    void note_exhausted() { exhausted_ = true; }
    bool is_exhausted() const { return exhausted_; }

 private:
    std::int64_t held_ = 0, peak_ = 0;
    std::optional<std::int64_t> limit_;
    bool exhausted_ = false;
};

}  // namespace dp::trainer
