// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/parallel_choice.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

namespace dp::trainer {
namespace {

// "1, 2, 3 or 6".
std::string divisors_of(std::int64_t number) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t one = 1; one <= number; ++one)
        if (number % one == 0) divisors.push_back(one);
    std::string text = fmt::to_string(divisors.front());
    for (std::size_t i = 1; i < divisors.size(); ++i)
        text += (i + 1 < divisors.size() ? ", " : " or ") + fmt::to_string(divisors[i]);
    return text;
}

// What cannot be together with a divided model as yet.
Result<void> check_others(const Options& options, const std::string& asked) {
    if (options.device.choice == DeviceChoice::cuda)
        return fail(Fault::usage, "{} trains on CPUs only; give --device=cpu, or leave it out", asked);
    if (options.shape.gpt.lora_rank > 0)
        return fail(Fault::usage, "{} does not divide adapters; leave it or --lora-rank out", asked);
    if (options.training.precision == Precision::bf16)
        return fail(Fault::usage, "{} computes in fp32 only; give --precision=fp32, or leave it out", asked);
    return {};
}

}  // namespace

Result<ModelParallel> choose_parallel(const Options& options, const ModelInfo& info,
                                      const LaunchContext& here, std::int64_t ranks) {
    const std::int64_t of_step = ranks > 1 ? here.tensor_size : 1;
    if (ranks > 1 && here.pipeline_size > 1)
        return fail(Fault::usage, "--dp-pipeline={}: the trainer has no pipeline of stages; leave it out",
                    here.pipeline_size);
    if (options.tensor_parallel && of_step > 1 && *options.tensor_parallel != of_step)
        return fail(Fault::usage,
                    "--tensor-parallel {}, but the step has --dp-tensor={}; give the same, or leave one out",
                    *options.tensor_parallel, of_step);
    const std::int64_t tensor = options.tensor_parallel.value_or(of_step);
    const std::string asked = options.tensor_parallel ? fmt::format("--tensor-parallel {}", tensor)
                                                      : fmt::format("--dp-tensor={}", tensor);
    if (tensor == 1) return ModelParallel{1, static_cast<std::uint32_t>(ranks), 1};
    if (info.name != "gpt")
        return fail(Fault::usage, "{} is not divided among ranks; leave {} out, or give --model=gpt",
                    info.name, asked);
    const std::int64_t heads = options.shape.gpt.heads;
    if (ranks % tensor != 0)
        return fail(Fault::usage, "{} rank{} cannot be divided by {}; give {}, or a multiple of {} ranks",
                    ranks, ranks == 1 ? "" : "s", asked, divisors_of(std::gcd(ranks, heads)), tensor);
    if (heads % tensor != 0)
        return fail(Fault::usage, "{} does not divide --num-attention-heads {}; give {}", asked, heads,
                    divisors_of(std::gcd(ranks, heads)));
    DP_TRY(check_others(options, asked));
    return ModelParallel::of_world(static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(tensor), 1);
}

Layout layout_of(const ModelParallel& parallel, std::int64_t rank) {
    return {parallel.rank_in(Dimension::tensor, static_cast<std::uint32_t>(rank)), parallel.tensor};
}

}  // namespace dp::trainer
