// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/shape_prediction.hpp"

#include <algorithm>
#include <numeric>

#include "trainer/base/partition.hpp"
#include "trainer/models/pipeline_split.hpp"
#include "trainer/training/pipeline_time.hpp"

namespace dp::trainer {
namespace {

// How a group of ranks is reached: the distance between neighbours in it, and how many they are.
struct Reach {
    double rate, latency;
};
Reach reach_of(const Hardware& hardware, std::int64_t stride, std::int64_t size) {
    const bool is_in_node = hardware.ranks_per_node % (stride * size) == 0;
    return is_in_node ? Reach{hardware.node_rate, hardware.node_latency}
                      : Reach{hardware.network_rate, hardware.network_latency};
}

double seconds_of_sum(double bytes, std::int64_t stride, std::int64_t size, const Hardware& hardware) {
    if (size == 1) return 0;
    const auto [rate, latency] = reach_of(hardware, stride, size);
    const auto n = static_cast<double>(size);
    return 2 * (n - 1) * latency + 2 * (n - 1) / n * bytes / rate;
}

GptShape learning_all(GptShape shape) {
    shape.freeze = {};
    shape.lora_rank = 0;
    return shape;
}

}  // namespace

std::int64_t sharing_of(const ModelParallel& ranks, const Hardware& hardware) {
    if (!hardware.shares_memory) return 1;
    return std::clamp<std::int64_t>(hardware.ranks_per_node / ranks.tensor, 1, ranks.data);
}

std::vector<Division> divisions_of(const GptShape& shape, std::int64_t ranks, std::int64_t global_batch,
                                   std::int64_t chunks) {
    std::vector<Division> all;
    for (const std::int64_t tensor : divisors_of(std::gcd(ranks, shape.heads)))
        for (const std::int64_t stages : divisors_of(ranks / tensor)) {
            if (tensor > shape.vocabulary) break;
            const std::int64_t data = ranks / tensor / stages;
            const std::int64_t chunks_here = stages > 1 ? chunks : 1;
            if (stages * chunks_here > shape.layers || global_batch % data != 0) continue;
            const std::int64_t samples = global_batch / data;
            for (const std::int64_t batch : divisors_of(samples)) {
                const std::int64_t micro_batches = samples / batch;
                if (micro_batches < stages || (chunks_here > 1 && micro_batches % stages != 0)) continue;
                all.push_back({{static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(data),
                                static_cast<std::uint32_t>(stages)},
                               batch,
                               micro_batches});
            }
        }
    return all;
}

StepSeconds predict_step(const Division& division, const GptShape& shape, const PassSeconds& passes,
                         const Hardware& hardware, std::int64_t parameters, std::int64_t number,
                         PipelineSchedule schedule) {
    const auto& [ranks, batch, micro_batches] = division;
    const std::int64_t tensor = ranks.tensor, stages = ranks.pipeline, data = ranks.data;
    const auto samples = static_cast<double>(batch), passed = static_cast<double>(micro_batches);
    GptShape divided = shape;
    divided.layout.stages = stages;
    const std::int64_t chunks = divided.layout.chunks = stages > 1 ? shape.layout.chunks : 1;
    const auto layers = chunk_layers(divided);
    const double stream = samples * static_cast<double>(shape.sequence * shape.hidden * number);
    const bool divides_tokens = shape.layout.divides_tokens;
    const double one_sum = seconds_of_sum(stream, 1, tensor, hardware);
    double sent = 0;  // of a chunk: once in each direction
    if (stages > 1) {
        const auto [rate, latency] = reach_of(hardware, tensor * data, stages);
        sent = 2 * (latency + stream / (divides_tokens ? static_cast<double>(tensor) : 1) / rate);
    }
    struct StageTime {
        double compute = 0, tensor = 0;
        double both() const { return compute + tensor; }
    };
    std::vector<StageTime> of_stages(static_cast<std::size_t>(stages));
    std::vector<ChunkTime> times;
    const SplitCosts costs = split_costs(shape), all = split_costs(learning_all(shape));
    std::size_t layer = 0;
    for (std::size_t chunk = 0; chunk < layers.size(); ++chunk) {
        StageTime forward, backward;
        const auto add = [&](const PassFlops& flops, double seconds, const PassFlops& of) {
            const double one =
                samples * seconds / static_cast<double>(tensor) / static_cast<double>(of.both());
            forward.compute += one * static_cast<double>(flops.forward);
            backward.compute += one * static_cast<double>(flops.backward);
        };
        for (std::int64_t i = 0; i < layers[chunk]; ++i, ++layer) {
            add(costs.layers[layer], passes.layer, all.layers.front());
            forward.tensor += 2 * one_sum;
            // Where ranks divide the tokens, a sum is a reduce-scatter and an all-gather, of which a layer gathers two more.
            if (costs.layers[layer].backward > 0)
                backward.tensor += ((divides_tokens ? 3 : 2) + (shape.recompute ? 2 : 0)) * one_sum;
        }
        if (chunk == 0) forward.tensor += one_sum;
        if (chunk + 1 == layers.size()) {
            add(costs.head, passes.ends, all.head);
            backward.tensor += one_sum;
        }
        StageTime& stage = of_stages[chunk % of_stages.size()];
        stage.compute += forward.compute + backward.compute;
        stage.tensor += forward.tensor + backward.tensor;
        times.push_back({forward.both() + sent / 2, backward.both() + sent / 2});
    }
    const StageTime slowest = std::ranges::max(of_stages, {}, &StageTime::both);
    StepSeconds step;
    step.compute = passed * slowest.compute;
    step.tensor = passed * slowest.tensor;
    step.messages = passed * static_cast<double>(chunks) * sent;
    if (stages > 1)
        step.bubble = time_of_passes({schedule, 0, stages, chunks, micro_batches}, times) - step.compute -
                      step.tensor - step.messages;
    const double bytes = static_cast<double>(parameters) * sizeof(float);
    step.gradients = seconds_of_sum(bytes, tensor, data, hardware);
    constexpr double kTouched = 7;  // Adam reads value, gradient and two moments, and writes three of them
    step.optimizer =
        kTouched * bytes / hardware.memory_rate / static_cast<double>(sharing_of(ranks, hardware));
    return step;
}

std::optional<Hardware> hardware_named(const std::string& name) {
    if (name != "h100") return std::nullopt;
    Hardware h100;
    h100.name = "H100 SXM, 8 in a node";
    h100.ranks_per_node = 8;
    h100.memory = static_cast<std::int64_t>(0.9 * 80e9);
    h100.memory_rate = 0.8 * 3.35e12;
    h100.node_rate = 0.8 * 450e9;
    h100.network_rate = 0.8 * 50e9;
    h100.node_latency = 5e-6;
    h100.network_latency = 15e-6;
    return h100;
}

PassSeconds passes_on_paper(const GptShape& shape) {
    constexpr double kRate = 0.45 * 989e12;  // FLOP a second
    const auto c = static_cast<double>(shape.hidden), t = static_cast<double>(shape.sequence);
    // Products of a token and layer: 24 c² with its weights, 4 t c of attention's scores, half of them masked; backward twice as many
    // (Narayanan et al. 2021, section 3.4).
    const double layer = (shape.recompute ? 4 : 3) * t * (24 * c * c + 2 * t * c),
                 ends = 3 * t * 2 * c * static_cast<double>(shape.vocabulary);
    return {layer / kRate, ends / kRate};
}

}  // namespace dp::trainer
