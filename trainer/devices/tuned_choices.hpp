// SPDX-License-Identifier: Apache-2.0
//
// What has been found to be fastest on a device: choices between ways to the same result, as bytes that only
// the device understands. `trainer compile` lets a device fill it, and keeps it; a run gives it back
// (Device::adopt). A choice may change the order in which numbers are added, and so the last bits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace dp::trainer {

class TunedChoices {
 public:
    // By what is chosen, in the device's own words: "threads", "product 512 x 784 x 64".
    std::optional<std::string> find(const std::string& what) const {
        const auto found = all_.find(what);
        return found == all_.end() ? std::nullopt : std::optional(found->second);
    }
    void set(const std::string& what, std::string choice) { all_[what] = std::move(choice); }

    // Whether the device is to measure what it does not find here, and to set it: that takes its time.
    bool is_measuring() const { return is_measuring_; }
    void measure(bool on) { is_measuring_ = on; }

    const std::map<std::string, std::string>& all() const { return all_; }

 private:
    std::map<std::string, std::string> all_;
    bool is_measuring_ = false;
};

}  // namespace dp::trainer
