// SPDX-License-Identifier: Apache-2.0
//
// The environments of ranks in the record: what slurm-dp has set there (common/told_environment.hpp), what all have in common once. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "record.pb.h"

namespace dp {

using Variables = std::map<std::string, std::string>;

struct RecordedEnvironment {
    Variables common;
    std::map<uint32_t, Variables> ranks;  // what is not common

    // Of these ranks, too.
    void merge(RecordedEnvironment more);
};

// From what a rank's process has told; printable.
Variables variables_of(std::string_view told);

record::Entry environment_entry(uint32_t generation, const std::map<uint32_t, Variables>& ranks);

// What a file says, made printable; nothing if it is more than ranks can have told, `ranks` of them at most.
std::optional<RecordedEnvironment> environment_of(const record::Environment& said, size_t ranks);

}  // namespace dp
