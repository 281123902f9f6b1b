// SPDX-License-Identifier: Apache-2.0
//
// The record's entries as bytes of a file (proto/record.proto), and what of a node's messages becomes one. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/daemon_config.hpp"
#include "common/plan_file.hpp"
#include "dp.pb.h"
#include "record.pb.h"

namespace dp {

// The first line of a file: what follows it is packed (record/packing.hpp), or, in an older one, plain.
inline constexpr std::string_view kRecordMagic = "slurm-dp record 2\n",
                                  kPlainRecordMagic = "slurm-dp record 1\n";
// Of one entry, in bytes; longer ones are rejected.
inline constexpr size_t kMaxRecordEntry = size_t{1} << 20;
inline constexpr size_t kMaxRecordText = 2000;
inline constexpr std::string_view kRecordSuffix = ".dprecord";

// Behind its length.
std::string bytes_of(const record::Entry& entry);

// An entry at the front of `bytes`, and its size there with the length. Nothing: more bytes are needed, or, if the size is
// 0, no entry begins here.
struct TakenEntry {
    std::optional<record::Entry> entry;
    std::optional<size_t> size;
};
TakenEntry take_entry(std::string_view bytes);

record::Entry begin_entry(const DaemonConfig& config, const std::string& run, const std::string& version,
                          int64_t unix_ms);
// `config`: as it is once the plan has been taken.
record::Entry generation_entry(const DaemonConfig& config, const NodePlan& plan);
record::Entry generation_end_entry(uint32_t generation, const wire::Abort& why, bool is_last);
record::Entry note_entry(const std::string& text);
// News of the node's ranks.
std::vector<record::Entry> entries_of(const wire::FromNode& message);

// The file of a node in a run: "12.0-9f86d081c0ffee00-node01.dprecord", or "launch-…" where there is no job; of a heterogeneous
// step "12.0+1-…", with the node's rank.
std::string record_file_name(const NodeOfStep& node, const std::string& run);

}  // namespace dp
