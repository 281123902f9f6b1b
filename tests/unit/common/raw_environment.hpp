// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/environment_list.hpp"

namespace dp {

// An environment as the kernel and Slurm keep it; what is written into it can be read back.
class RawEnvironment {
 public:
    explicit RawEnvironment(std::vector<std::string> text) : text_(std::move(text)) {
        for (auto& one : text_) entries_.push_back(one.data());
        entries_.push_back(nullptr);
    }
    char** get() { return entries_.data(); }
    bool write(const EnvironmentChange& change) { return EnvironmentList(get()).write(change); }
    std::vector<std::string> entries() const {
        std::vector<std::string> found;
        for (const auto& one : text_) found.emplace_back(one.c_str());
        return found;
    }

 private:
    std::vector<std::string> text_;
    std::vector<char*> entries_;
};

}  // namespace dp
