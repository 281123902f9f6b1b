// SPDX-License-Identifier: Apache-2.0
//
// What a node's file says of its run, but for the samples' times (timeline.hpp). Times are of its own clock, in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "record.pb.h"
#include "record/run.hpp"

namespace dp {

struct NodeFile {
    NodeRecord node;
    record::Begin begin;
    struct Generation {
        uint32_t world_size = 0;
        double began = 0;
        std::optional<int64_t> first_step;
    };
    std::map<uint32_t, Generation> generations;
    struct End {
        double at = 0;
        std::string reason;
        bool is_last = false;
    };
    std::map<uint32_t, End> ends;  // by generation, one that may never have begun
    std::vector<RunEvent> events;
    size_t events_left_out = 0;
    struct Hang {
        double at = 0;
        std::string reason;
        CallsOfHang calls;
    };
    std::vector<Hang> hangs;
    // By generation, of the last one of which that is known.
    std::optional<std::pair<uint32_t, RecordedTransports>> transports;
    std::optional<std::pair<uint32_t, RecordedEnvironment>> environment;
};

// Fails if it is no record at all. Writes to `problem` what is missing of it.
Try<NodeFile> read_node_file(const std::string& path, std::string& problem);

// Moves all its times by this many seconds.
void shift(NodeFile& file, double by);

}  // namespace dp
