// SPDX-License-Identifier: Apache-2.0
//
// A job's or step's generic resources on a node, as Slurm writes them for people (`scontrol show job -d`) and
// in gres_detail_str of its API: "gpu:a100:2(IDX:0,3),rdu_tile:4(IDX:8-11),license(CNT:2)". The format is
// that of gres_ctld_job_build_details in Slurm's src/slurmctld/gres_ctld.c.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// The highest valid index: a guard against "IDX:0-4294967295".
inline constexpr uint32_t kMaxGresIndex = 65535;

struct GresUnits {
    std::string name;  // "gpu"
    std::string type;  // "a100"; "" where it has none
    uint64_t count = 0;
    // The indices, ascending; nullopt if Slurm only counts the gres (no File= in gres.conf), or only says how
    // much of each is given (shard and mps since 23.11: "shard:2(1/4,1/4)"; before, fewer indices than
    // `count`). Slurm cuts the list at 127 characters; then, too, there are fewer.
    std::optional<std::vector<uint32_t>> indices;

    bool operator==(const GresUnits&) const = default;
};

// Parses one node's. An empty text means nothing given; "" and "N/A" mean no indices.
Try<std::vector<GresUnits>> parse_gres_detail(std::string_view text);

// The reverse.
std::string gres_detail(const std::vector<GresUnits>& given);

// The gres of all nodes of a job (name and detail), as one line that the launcher sends them, folding neighbours
// with the same: "gpu[01-02]=gpu:4(IDX:0-3);gpu03=gpu:2(IDX:0-1)". Nodes without any are left out.
std::string write_job_gres(const std::vector<std::pair<std::string, std::string>>& nodes);

// One node's detail in it; "" if it is not there.
Try<std::string> gres_of_node(std::string_view job_gres, std::string_view node);

// The number of units of one gres, of all types, that a step has on a node with that many of its tasks, by its
// request per node, "|", and its request per task ("gres:rdu:2,gres:gpu:a100:1", since 23.11 "gres/rdu:2" or
// "gres/rdu=2"). The launcher sends it for gres other than GPUs, of which Slurm tells the nodes nothing.
uint64_t units_of_step(std::string_view step_gres, std::string_view gres, uint64_t tasks);

// A node's units of one gres, of all types, in Slurm's text about the node ("gpu:a100:4(S:0-1),rdu:8").
uint64_t configured_units(std::string_view node_gres, std::string_view gres);

}  // namespace dp
