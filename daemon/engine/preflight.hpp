// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a group say of themselves before they start something together (their version of NCCL,
// their device), compared: who does not fit, in words. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp.pb.h"

namespace dp {

inline constexpr int kMaxFacts = 16;          // of a rank
inline constexpr size_t kMaxFactBytes = 256;  // each of name and value
inline constexpr size_t kMaxRemedyBytes = 512;

// The hosts of these ranks, compressed.
using HostsOf = std::function<std::string(std::span<const uint32_t> ranks)>;

// Why a rank's facts cannot be taken.
std::optional<std::string> unfit(const google::protobuf::RepeatedPtrField<wire::Fact>& facts);

// The first fact in which the ranks do not fit together; nullopt where they do. A fact that not all have is
// compared between those that have it.
std::optional<std::string> disagreement(const std::map<uint32_t, std::vector<wire::Fact>>& by_rank,
                                        const HostsOf& hosts_of);

}  // namespace dp
