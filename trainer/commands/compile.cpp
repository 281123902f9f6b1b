// SPDX-License-Identifier: Apache-2.0
//
// See compile.hpp. It refuses what a run would refuse, because it prepares as a run does.
#include "trainer/commands/compile.hpp"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/base/output_file.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/commands/compile_report.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/compile/build.hpp"
#include "trainer/compile/cache.hpp"
#include "trainer/compile/plan.hpp"
#include "trainer/compile/steps.hpp"
#include "trainer/compile/stored_data.hpp"
#include "trainer/compile/threads.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/memory/left.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// Of steps that are timed.
constexpr double kSeconds = 0.5;
// Longer steps keep all threads busy, and trying would take minutes.
constexpr double kLongStep = 2;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Out of the cache, after it has been put there if need be.
Result<Dataset> compile_data(const Cache& cache, const CacheKey& key, const DataRequest& request, bool force,
                             CompileResult& result) {
    if (!is_worth_storing(request)) return load(request);
    auto found = cache.find(key);
    const auto read = [&]() -> Result<Dataset> {
        const auto start = Clock::now();
        auto data = read_data(*found.entry, request);
        result.data.read_seconds = seconds_since(start);
        result.data.load_seconds = seconds_to_load(*found.entry);
        result.data.bytes = found.entry->bytes();
        return data;
    };
    result.data.was = found.why_not;
    if (found.entry && !force) {
        result.data.made = Made::kept;
        auto data = read();
        if (data) return data;
        result.data.was = data.error().message;
    }
    result.data.made = Made::now;
    const auto start = Clock::now();
    {
        const auto loaded = DP_TRY(load_all(request));
        const double seconds = seconds_since(start);
        DP_TRY(store_data(cache, key, request, loaded, seconds));
    }
    found = cache.find(key);
    auto data = found.entry ? read() : Result<Dataset>(fail(Fault::usage, found.why_not));
    if (data) return data;
    return fail(Fault::usage, fmt::format("--cache-dir {}: what was just written there cannot be read ({}); "
                                          "give another directory",
                                          cache.directory().string(), data.error().message));
}

// Opens the device that --device asks for.
using Open = std::function<Result<OpenedDevice>()>;

// On a device that has not worked yet: what it has a choice of it measures when it first comes to it.
Result<void> let_device_choose(const Trial& trial, const Open& open, Plan& plan) {
    const auto opened = DP_TRY(open());
    Device& device = *opened.device;
    device.choices().measure(true);
    const auto tuned = DP_TRY(time_steps(trial, device, kSeconds));
    device.choices().measure(false);
    if (device.choices().all().empty() || tuned.seconds >= plan.plain_seconds) return {};
    plan.step_seconds = tuned.seconds;
    plan.choices = device.choices();
    return {};
}

// What a training takes, and how it is fastest.
Result<Plan> make_plan(const Trial& trial, Device& device, const Open& open, const Surroundings& here,
                       const MemoryCase& memory_case, std::vector<ThreadTrial>& trials) {
    Plan plan;
    plan.needs = estimate_memory(memory_case.model, trial.settings, &trial.data, 1, &device);
    const auto plain = time_steps(trial, device, kSeconds);
    if (!plain) return tl::unexpected(with_advice(plain.error(), device, memory_case));
    plan.peak = device.memory().peak();
    plan.plain_seconds = plan.step_seconds = plain->seconds;
    if (device.is_deterministic()) return plan;  // measuring again might choose otherwise
    if (device.name() != "cpu") {
        DP_TRY(let_device_choose(trial, open, plan));
        return plan;
    }
    const int threads = threads_for(here);
    if (here.omp_threads || threads == 1 || plain->seconds > kLongStep) return plan;
    auto tried = DP_TRY(try_threads(trial, threads, kSeconds));
    trials = std::move(tried);
    const ThreadTrial best = best_of(trials);
    plan.plain_seconds = trials.front().step.seconds;
    plan.step_seconds = best.step.seconds;
    if (best.threads != threads) plan.choices.set(kThreadsChoice, std::to_string(best.threads));
    return plan;
}

// Where it was found, or made and kept.
Result<void> find_or_make_plan(const Prepared& prepared, const Cache& cache, const CacheKey& key,
                               const Surroundings& here, const std::function<void(const std::string&)>& say,
                               CompileResult& result) {
    const Options& options = prepared.options;
    const auto found = cache.find(key);
    result.plan.was = found.why_not;
    if (found.entry && !options.cache.force) {
        if (const auto kept = plan_of(found.entry->content())) {
            result.plan.made = Made::kept;
            result.plan.plan = *kept;
            return {};
        }
        result.plan.was = "damaged";
    }
    say(fmt::format("compiling {} with a batch of {} for {}", result.model, result.batch,
                    result.device_name));
    auto plan = DP_TRY(make_plan(
        {*prepared.info, options.shape, prepared.data, options.training}, prepared.device(),
        [&] { return open_device_of(options, here); }, here, prepared.memory_case(1, 1), result.plan.trials));
    DP_TRY(cache.put(key, json_of(plan), {}));
    result.plan.plan = std::move(plan);
    return {};
}

Result<void> tell(const CompileResult& result, const Options& options) {
    const std::string json =
        compile_json(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (options.output.json) {
        DP_TRY(write_output(*options.output.json, json + "\n"));
    }
    print_if_possible(stdout, fmt::format("{}\n{}\n", compile_table(result), json));
    return {};
}

}  // namespace

Result<void> compile(const Options& given, Clock::time_point started) {
    const Surroundings here = gather_surroundings();
    if (here.local_rank != 0) return {};
    const auto directory = cache_directory(given.cache);
    if (!directory)
        return fail(Fault::usage,
                    "`trainer compile` has nowhere to keep what it makes; give --cache-dir DIR");
    const bool speaks = speaks_for_all(here);
    DP_TRY(speaks ? can_be_written("--json", given.output.json) : Result<void>());
    const auto say = [&](const std::string& line) {
        if (speaks) print_if_possible(stdout, line + "\n");
    };
    const auto choice = DP_TRY(choose_model(given, has_fashion_mnist(given.data.directory)));
    if (choice.reason) say(*choice.reason);

    const Cache cache(*directory);
    const std::string build = build_of_this_program();
    CompileResult result;
    CacheKey from_data;
    std::optional<MadeDirectories> opened_cache;
    const auto prepared =
        prepare_training(completed(given, *choice.info), *choice.info, here, 1,
                         [&](const Options& options) -> Result<Dataset> {
                             auto writable = DP_TRY(cache.open_for_writing());
                             opened_cache.emplace(std::move(writable));
                             from_data = data_key(options.data, build);
                             return compile_data(cache, from_data, options.data, options.cache.force, result);
                         });
    if (!prepared) return tl::unexpected(prepared.error());
    const Options& options = prepared->options;
    Device& device = prepared->device();
    if (prepared->opened.note) say(*prepared->opened.note);
    for (const auto& line : options_without_effect(options)) say(line);
    if (auto problem = memory_problem(prepared->info->name, prepared->memory_case(1, 1), device.name(),
                                      available_here(device, here)))
        return fail(Fault::device, *problem);
    result.model = prepared->info->name;
    result.device = device.name();
    result.device_name = device.facts().model;
    result.batch = options.training.batch;
    result.accumulate = options.training.accumulate;
    result.directory = directory->string();
    result.threads = threads_for(here);
    const CacheKey key =
        plan_key({values_of_plan(options), device, here.omp_threads.has_value(), from_data}, build);
    DP_TRY(find_or_make_plan(*prepared, cache, key, here, say, result));
    result.removed = cache.prune(options.cache.limit);
    result.cache_bytes = cache.bytes();
    result.seconds = seconds_since(started);
    return speaks ? tell(result, options) : Result<void>();
}

}  // namespace dp::trainer
