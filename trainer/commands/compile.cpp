// SPDX-License-Identifier: Apache-2.0
//
// See compile.hpp. It refuses what a run would refuse, in the same words and the same order.
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
#include "trainer/compile/build.hpp"
#include "trainer/compile/cache.hpp"
#include "trainer/compile/plan.hpp"
#include "trainer/compile/steps.hpp"
#include "trainer/compile/stored_data.hpp"
#include "trainer/compile/threads.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/memory/left.hpp"
#include "trainer/training/schedule.hpp"

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
        result.read_seconds = seconds_since(start);
        result.load_seconds = seconds_to_load(*found.entry);
        result.data_bytes = found.entry->bytes();
        return data;
    };
    result.data_was = found.why_not;
    if (found.entry && !force) {
        result.data = Made::kept;
        auto data = read();
        if (data) return data;
        result.data_was = data.error().message;
    }
    result.data = Made::now;
    const auto start = Clock::now();
    {
        const auto loaded = load_all(request);
        if (!loaded) return tl::make_unexpected(loaded.error());
        const double seconds = seconds_since(start);
        if (auto done = store_data(cache, key, request, *loaded, seconds); !done)
            return tl::make_unexpected(done.error());
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
    const auto opened = open();
    if (!opened) return tl::make_unexpected(opened.error());
    Device& device = *opened->device;
    device.choices().measure(true);
    const auto tuned = time_steps(trial, device, kSeconds);
    if (!tuned) return tl::make_unexpected(tuned.error());
    device.choices().measure(false);
    if (device.choices().all().empty() || tuned->seconds >= plan.plain_seconds) return {};
    plan.step_seconds = tuned->seconds;
    plan.choices = device.choices();
    return {};
}

// What a training takes, and how it is fastest.
Result<Plan> make_plan(const Trial& trial, Device& device, const Open& open, const Surroundings& here,
                       const MemoryCase& memory_case, std::vector<ThreadTrial>& trials) {
    Plan plan;
    plan.needs = estimate_memory(memory_case.model, trial.settings, &trial.data, 1, &device);
    const auto plain = time_steps(trial, device, kSeconds);
    if (!plain) return tl::make_unexpected(with_advice(plain.error(), device, memory_case));
    plan.peak = device.memory().peak();
    plan.plain_seconds = plan.step_seconds = plain->seconds;
    if (device.is_deterministic()) return plan;  // measuring again might choose otherwise
    if (device.name() != "cpu") {
        if (auto done = let_device_choose(trial, open, plan); !done) return tl::make_unexpected(done.error());
        return plan;
    }
    const int threads = threads_for(here);
    if (here.omp_threads || threads == 1 || plain->seconds > kLongStep) return plan;
    auto tried = try_threads(trial, threads, kSeconds);
    if (!tried) return tl::make_unexpected(tried.error());
    trials = std::move(*tried);
    const ThreadTrial best = best_of(trials);
    plan.plain_seconds = trials.front().step.seconds;
    plan.step_seconds = best.step.seconds;
    if (best.threads != threads) plan.choices.set(kThreadsChoice, std::to_string(best.threads));
    return plan;
}

Result<void> tell(const CompileResult& result, const Options& options) {
    const std::string json =
        compile_json(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (options.json) {
        if (auto done = write_output(*options.json, json + "\n"); !done) return done;
    }
    print_if_possible(stdout, fmt::format("{}\n{}\n", compile_table(result), json));
    return {};
}

}  // namespace

Result<void> compile(const Options& options, Clock::time_point started) {
    const Surroundings here = gather_surroundings();
    if (here.local_rank != 0) return {};
    const auto directory = cache_directory(options.cache);
    if (!directory)
        return fail(Fault::usage,
                    "`trainer compile` has nowhere to keep what it makes; give --cache-dir DIR");
    const bool speaks = speaks_for_all(here);
    if (auto writable = speaks ? can_be_written("--json", options.json) : Result<void>(); !writable)
        return writable;
    const auto say = [&](const std::string& line) {
        if (speaks) print_if_possible(stdout, line + "\n");
    };

    const auto choice = choose_model(options, has_fashion_mnist(options.data_directory));
    if (!choice) return tl::make_unexpected(choice.error());
    if (choice->reason) say(*choice->reason);
    const ModelInfo& info = *choice->info;
    const Settings settings = settings_for(options, info);
    const auto vocabulary =
        info.data == DataSet::tokens ? vocabulary_of(options.data_directory) : std::nullopt;
    const auto shape = shape_of(options.shape, info.name, vocabulary);
    if (!shape) return tl::make_unexpected(shape.error());
    const Cache cache(*directory);
    const auto opened_cache = cache.open_for_writing();
    if (!opened_cache) return tl::make_unexpected(opened_cache.error());
    const std::string build = build_of_this_program();
    const DataRequest request = data_request(options, info, *shape);
    const CacheKey from_data = data_key(request, build);
    CompileResult result;
    const auto data = compile_data(cache, from_data, request, options.cache.force, result);
    if (!data) return tl::make_unexpected(data.error());
    if (auto schedule = make_schedule(settings, data->train.count, 1); !schedule)
        return tl::make_unexpected(schedule.error());

    const Open open = [&] {
        auto one = open_device(options.device, here.gpu, threads_for(here));
        if (one) one->device->set_deterministic(options.deterministic);
        return one;
    };
    const auto opened = open();
    if (!opened) return tl::make_unexpected(opened.error());
    if (opened->note) say(*opened->note);
    Device& device = *opened->device;
    if (options.memory_limit) device.memory().set_limit(*options.memory_limit);

    const auto model = info.make(*shape);
    const auto recomputing = recomputing_model(info, *shape);
    const MemoryCase memory_case{*model, settings, &*data, 1, recomputing.get(), &device};
    if (auto problem = memory_problem(info.name, memory_case, device.name(), available_here(device, here)))
        return fail(Fault::device, *problem);
    result.model = info.name;
    result.device = device.name();
    result.device_name = device.facts().model;
    result.batch = settings.batch;
    result.accumulate = settings.accumulate;
    result.directory = directory->string();
    result.threads = threads_for(here);
    const CacheKey key = plan_key({info.name, *model, *shape, settings, device, here.omp_threads.has_value(),
                                   options.samples, from_data},
                                  build);
    std::optional<Plan> kept;
    const auto found = cache.find(key);
    result.plan_was = found.why_not;
    if (found.entry && !options.cache.force) {
        kept = plan_of(found.entry->content());
        if (!kept) result.plan_was = "damaged";
    }
    if (kept) {
        result.plan = Made::kept;
        result.planned = *kept;
    } else {
        say(fmt::format("compiling {} with a batch of {} for {}", info.name, settings.batch,
                        result.device_name));
        auto plan =
            make_plan({info, *shape, *data, settings}, device, open, here, memory_case, result.trials);
        if (!plan) return tl::make_unexpected(plan.error());
        if (auto done = cache.put(key, json_of(*plan), {}); !done) return done;
        result.planned = std::move(*plan);
    }
    result.removed = cache.prune(options.cache.limit);
    result.cache_bytes = cache.bytes();
    result.seconds = seconds_since(started);
    return speaks ? tell(result, options) : Result<void>();
}

}  // namespace dp::trainer
