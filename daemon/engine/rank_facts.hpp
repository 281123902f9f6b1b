// SPDX-License-Identifier: Apache-2.0
//
// Compares facts about the ranks of a group before they start something together (their NCCL version, their
// device), and says which ranks do not match. Pure.
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

// Why a rank's facts are invalid.
std::optional<std::string> unfit(const google::protobuf::RepeatedPtrField<wire::Fact>& facts);

struct ComparedFact {
    wire::Fact fact;  // as the first rank gave it
    std::map<std::string, std::vector<uint32_t>> ranks_by_value;
};

// Collects a group's facts; each name, rule and remedy is stored once.
class Comparison {
 public:
    void add(uint32_t rank, const google::protobuf::RepeatedPtrField<wire::Fact>& facts);
    // The rank has left.
    void remove(uint32_t rank);
    // The first fact that breaks its rule. A fact that only some ranks have is compared among those.
    std::optional<std::string> disagreement(const HostsOf& hosts_of) const;

 private:
    std::vector<ComparedFact> compared_;  // in the order in which they came
};

}  // namespace dp
