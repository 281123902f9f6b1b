// SPDX-License-Identifier: Apache-2.0
//
// What a job or a step was given of a node's generic resources, as Slurm writes it for people (`scontrol show
// job -d`) and in gres_detail_str of its API: "gpu:a100:2(IDX:0,3),rdu_tile:4(IDX:8-11),license(CNT:2)".
// Source of the form: gres_ctld_job_build_details of Slurm's src/slurmctld/gres_ctld.c.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dp {

// Highest index that is taken for one: a guard against "IDX:0-4294967295".
inline constexpr uint32_t kMaxGresIndex = 65535;

struct GresUnits {
    std::string name;  // "gpu"
    std::string type;  // "a100"; "" where it has none
    uint64_t count = 0;
    // Which ones, ascending; nullopt where Slurm counts them only (no File= in gres.conf), or says only how
    // much of each is given (shard and mps since 23.11: "shard:2(1/4,1/4)"; before, fewer indices than
    // `count`). Slurm cuts the list at 127 characters: then, too, they are fewer.
    std::optional<std::vector<uint32_t>> indices;

    bool operator==(const GresUnits&) const = default;
};

// Of one node. An empty text is nothing given; "" and "N/A" for indices are none of them.
Try<std::vector<GresUnits>> parse_gres_detail(std::string_view text);

// The same as text again.
std::string gres_detail(const std::vector<GresUnits>& given);

// What the nodes of a job were given, as one line that the launcher sends them: neighbours with the same
// together, "gpu[01-02]=gpu:4(IDX:0-3);gpu03=gpu:2(IDX:0-1)". Nodes without any are left out.
struct NodeGres {
    std::string node;
    std::string detail;
};
std::string write_job_gres(const std::vector<NodeGres>& nodes);

// The detail of one node in it; "" where it is not there.
Try<std::string> gres_of_node(std::string_view job_gres, std::string_view node);

// How many units of one gres a step's request names ("gres:rdu:2,gres:gpu:a100:1", since 23.11 "gres/rdu:2"
// or "gres/rdu=2"), of all types; nullopt where it does not name the gres.
std::optional<uint64_t> requested_units(std::string_view tres, std::string_view gres);

// What a step asks for of the gres that Slurm tells no node of (of GPUs it does), or its job where it asks
// for none; as one word that the launcher sends its nodes.
struct StepGres {
    std::string per_node;  // as in requested_units
    std::string per_task;
    // How many it was given on a node with so many of its tasks.
    uint64_t units_on_node(std::string_view gres, uint64_t tasks) const;
};
std::string write_step_gres(const StepGres& step);
StepGres read_step_gres(std::string_view text);

// How many units of one gres a node has, of all types, in what Slurm writes of the node
// ("gpu:a100:4(S:0-1),rdu:8"); nullopt where it has none.
std::optional<uint64_t> configured_units(std::string_view node_gres, std::string_view gres);

}  // namespace dp
