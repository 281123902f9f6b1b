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

// The facts of a group as they come in; each name, rule and remedy is kept once.
class Comparison {
 public:
    void add(uint32_t rank, const google::protobuf::RepeatedPtrField<wire::Fact>& facts);
    // The rank is not there any more.
    void remove(uint32_t rank);
    // The first fact in which the ranks do not fit together; nullopt where they do. A fact that not all have
    // is compared between those that have it.
    std::optional<std::string> disagreement(const HostsOf& hosts_of) const;

 private:
    struct Compared {
        wire::Fact fact;  // as the first rank gave it
        std::map<std::string, std::vector<uint32_t>> ranks_by_value;
    };
    std::vector<Compared> compared_;  // in the order in which they came

    static std::optional<std::string> misfit(const Compared& compared, const HostsOf& hosts_of);
    static std::string values_that_differ(const Compared& compared, const HostsOf& hosts_of);
};

}  // namespace dp
