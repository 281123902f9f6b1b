// SPDX-License-Identifier: Apache-2.0
//
// How long a step of gpt takes where ranks divide it, on paper: for `trainer plan`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/model_parallel.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// What ranks run on. Seconds, and bytes a second.
struct Hardware {
    std::string name;
    std::int64_t ranks_per_node = 1;
    bool shares_memory =
        false;  // ranks of a node with the same part of a model have it once, with its optimizer (NodeShare)
    std::int64_t memory = 0;                 // bytes that a rank may take
    double memory_rate = 0;                  // of a rank, read and written
    double node_rate = 0, network_rate = 0;  // what a rank sends to others of its node, and to other nodes
    double node_latency = 0, network_latency = 0;  // of a message
};

// What both passes of a sample take on one rank that has the whole model and learns all of it: in each layer, and in embedding and
// head together.
struct PassSeconds {
    double layer = 0, ends = 0;
};

// A way to divide the model, and the batch of those ranks that have a model together.
struct Division {
    ModelParallel ranks;
    std::int64_t batch = 1, micro_batches = 1;
    bool operator==(const Division&) const = default;
};

// Where the time of a step goes on the rank that takes longest.
struct StepSeconds {
    double compute = 0;    // of the layers that a rank has
    double bubble = 0;     // waiting for other stages
    double tensor = 0;     // sums among the ranks that divide each layer
    double messages = 0;   // from stage to stage
    double gradients = 0;  // their sum among the ranks that have the same part of the model
    double optimizer = 0;

    double total() const { return compute + bubble + tensor + messages + gradients + optimizer; }
};

// Ranks of a node that have the same part of the model, and share it.
std::int64_t sharing_of(const ModelParallel& ranks, const Hardware& hardware);

// All divisions of a model among so many ranks which take `global_batch` samples a step. `chunks`: of each stage, where it is
// above 1 of an interleaved schedule.
std::vector<Division> divisions_of(const GptShape& shape, std::int64_t ranks, std::int64_t global_batch,
                                   std::int64_t chunks = 1);

// What stages wait is by the order of their passes (pipeline_time.hpp), with the layers that each has (pipeline_split.hpp).
// Embedding and head count on the last stage, as nearly all of it is the head. Nothing overlaps in it but the stages. Sums are by
// rings: of n ranks each sends 2 (n - 1) / n of the bytes (Patarasuk and Yuan 2009). Where ranks of a group are on several nodes,
// the network is what they wait for. `parameters`: of the rank with the most. A layer sums four times a micro-batch (Shoeybi et
// al. 2019, section 3), in numbers of `number` bytes. What is frozen saves by its FLOPs (split_costs()). Of the shape's layout
// count whether ranks divide the tokens, chunks and split.
StepSeconds predict_step(const Division& division, const GptShape& shape, const PassSeconds& passes,
                         const Hardware& hardware, std::int64_t parameters, std::int64_t number,
                         PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward);

// What is known of a GPU: "h100"; nullopt of others. On paper: NVIDIA's data sheet of the H100 SXM (2023) and a network of
// 400 Gbit/s for each GPU, all at 80 %.
std::optional<Hardware> hardware_named(const std::string& name);
// Of the same GPU in bf16, at 45 % of what it can do, as Megatron-LM reports for models of such sizes (Narayanan et al. 2021,
// table 1).
PassSeconds passes_on_paper(const GptShape& shape);

}  // namespace dp::trainer
