// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/compile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "trainer/base/output_file.hpp"
#include "trainer/base/seconds_since.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/compile/stored_data.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/memory/available.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.5;  // of steps that are timed
constexpr double kLongStep = 2;   // keeps all threads busy, and trying others would take minutes

// From the cache, after it has been put there if need be.
Result<Dataset> compile_data(const Cache& cache, const CacheKey& key, const DataRequest& request, bool force,
                             CompiledData& told) {
    if (!is_worth_storing(request)) return load(request);
    const auto read = [&](const Lookup& found) -> Result<Dataset> {
        if (!found.entry) return fail(Fault::usage, found.why_not);
        const auto start = Clock::now();
        auto data = read_data(*found.entry, request);
        told.read_seconds = seconds_since(start);
        told.load_seconds = found.entry->content.value("seconds", 0.0);
        told.bytes = found.entry->bytes;
        return data;
    };
    const auto found = cache.find(key);
    told.was = found.why_not;
    if (found.entry && !force) {
        told.made = Made::kept;
        auto data = read(found);
        if (data) return data;
        told.was = data.error().message;
    }
    told.made = Made::now;
    {
        const auto start = Clock::now();
        const auto loaded = DP_TRY(load_all(request));
        DP_TRY(store_data(cache, key, request, loaded, seconds_since(start)));
    }
    auto data = read(cache.find(key));
    if (data) return data;
    return fail(Fault::usage,
                "--cache-dir {}: what was just written there cannot be read ({}); give another directory",
                cache.directory().string(), data.error().message);
}

}  // namespace

std::vector<std::string> notes_of(const TunedChoices& choices, bool is_kept) {
    std::vector<std::string> notes;
    for (const auto& [what, choice] : choices.all()) {
        const bool is_other = choice.starts_with("cudnn ");
        if (is_other || choice.starts_with("ours: "))
            notes.push_back(fmt::format("{}: {}{}", what, choice,
                                        is_other && !is_kept ? ", not kept: a whole step is no faster" : ""));
    }
    return notes;
}

namespace {

// What a training takes, and how it is fastest.
Result<void> make_plan(const Prepared& prepared, const LaunchContext& here, CompiledPlan& told) {
    const Options& options = prepared.options;
    const Trial trial{*prepared.info, options.shape, prepared.data, options.training};
    const MemoryCase memory = prepared.memory_case(1, 1);
    Device& device = prepared.device();
    Plan& plan = told.plan;
    plan.needs = estimate_memory(memory);
    const auto plain = time_steps(trial, device, kSeconds);
    if (!plain) return tl::unexpected(with_advice(plain.error(), device, memory));
    plan.peak = device.memory().peak();
    plan.plain_seconds = plan.step_seconds = plain->seconds;
    if (device.is_deterministic()) return {};  // measuring again might choose otherwise
    if (device.name() != "cpu") {
        // A fresh one: a device measures its choices when it first comes to each.
        const auto fresh = DP_TRY(open_device_of(options, here));
        TunedChoices& choices = fresh.device->choices();
        choices.measure(true);
        const auto tuned = DP_TRY(time_steps(trial, *fresh.device, kSeconds));
        choices.measure(false);
        const bool is_kept = !choices.all().empty() && tuned.seconds < plan.plain_seconds;
        told.notes = notes_of(choices, is_kept);
        if (!is_kept) return {};
        plan.step_seconds = tuned.seconds;
        plan.choices = choices;
        return {};
    }
    const int threads = threads_for(here);
    if (here.omp_threads || threads == 1 || plain->seconds > kLongStep) return {};
    told.trials = DP_TRY(try_threads(trial, threads, kSeconds));
    const ThreadTrial best = best_of(told.trials);
    plan.plain_seconds = told.trials.front().step.seconds;
    plan.step_seconds = best.step.seconds;
    if (best.threads != threads) plan.choices.set(kThreadsChoice, std::to_string(best.threads));
    return {};
}

// Of a CPU with its choices; by a fresh one, because trials with other threads have been. They are no reason to fail.
Peaks peaks_of(const Options& options, const LaunchContext& here, const TunedChoices& choices) {
    const auto fresh = open_device_of(options, here);
    if (!fresh) return {};
    fresh->device->adopt(choices);
    return measure_peaks(*fresh->device, type_of(options.training.precision), 1).value_or(Peaks{});
}

// Whether the cache has it; else `told.was` says why not.
bool find_plan(const Cache& cache, const CacheKey& key, bool force, CompiledPlan& told) {
    const auto found = cache.find(key);
    told.was = found.why_not;
    if (!found.entry || force) return false;
    const auto kept = plan_of(found.entry->content);
    if (!kept) {
        told.was = "damaged";
        return false;
    }
    told.made = Made::kept;
    told.plan = *kept;
    return true;
}

// "written", or "written again, because it was stale (build)".
std::string written(const std::string& why) {
    return why.empty() ? "written" : fmt::format("written again, because it was {}", why);
}

std::string data_text(const CompileResult& r) {
    if (r.data.made == Made::none) return "not cached: it is made as fast as it would be read";
    return fmt::format("{} {}: {} to load without it, {} with it", size_text(r.data.bytes),
                       r.data.made == Made::kept ? "cached before" : written(r.data.was),
                       time_text(r.data.load_seconds), time_text(r.data.read_seconds));
}

std::string threads_text(const CompileResult& r) {
    const int chosen = threads_of(r.plan.plan.choices, r.threads);
    std::string text = std::to_string(chosen);
    if (chosen != r.threads) text += fmt::format(" instead of {}", r.threads);
    std::vector<std::string> tried;
    for (const ThreadTrial& trial : r.plan.trials)
        tried.push_back(fmt::format("{}: {}", trial.threads, time_text(trial.step.seconds)));
    if (tried.empty()) return text;
    return fmt::format(
        "{} (a step with {}{})", text, fmt::join(tried, ", "),
        is_disturbed(r.plan.trials)
            ? "; not tuned, because other programs used the CPUs meanwhile: --force tries again"
            : "");
}

const char* name_of(Made made) {
    return made == Made::none ? "none" : made == Made::kept ? "kept" : "made";
}

}  // namespace

Result<void> compile(const Options& as_given, Clock::time_point started) {
    const Options given = sized_by_weights(as_given);
    const LaunchContext here = read_launch_context();
    if (here.local_rank != 0) return {};
    const auto directory = cache_directory(given.cache);
    if (!directory)
        return fail(Fault::usage, "`trainer compile` has no directory for its cache; give --cache-dir DIR");
    const bool is_primary = is_primary_process(here);
    if (is_primary) DP_TRY(can_be_written("--json", given.output.json));
    const auto say = [&](const std::string& line) {
        if (is_primary) print_if_possible(stdout, line + "\n");
    };
    const auto choice = DP_TRY(choose_model(given, has_images(given)));
    if (choice.reason) say(*choice.reason);

    for (const auto& [option, size] : {std::pair{"--tensor-parallel", given.tensor_parallel},
                                       {"--pipeline-parallel", given.pipeline_parallel}})
        if (size.value_or(1) > 1)
            return fail(Fault::usage,
                        "{} {}: plans are of whole models, and ranks that divide one use none; leave it out",
                        option, *size);
    for (const char* option :
         {"--sequence-parallel", "--pipeline-split", "--pipeline-schedule", "--virtual-stages"})
        if (given.gave(option))
            return fail(Fault::usage,
                        "{}: plans are of whole models, and ranks that divide one use none; leave it out",
                        option);
    const Cache cache(*directory);
    const std::string build = build_of_this_program();
    CompileResult result;
    CacheKey data;
    std::optional<MadeDirectories> opened_cache;
    const auto load_data = [&](const Options& options) -> Result<Dataset> {
        auto writable = DP_TRY(cache.open_for_writing());
        opened_cache.emplace(std::move(writable));
        data = data_key(options.data, build);
        return compile_data(cache, data, options.data, options.cache.force, result.data);
    };
    const auto prepared =
        DP_TRY(prepare_training(completed(given, *choice.info), *choice.info, here, 1, load_data));
    const Options& options = prepared.options;
    Device& device = prepared.device();
    for (const auto& note : prepared.notes) say(note);
    if (prepared.opened.note) say(*prepared.opened.note);
    for (const auto& line : options_without_effect(options)) say(line);
    if (auto problem = memory_problem(prepared.info->name, prepared.memory_case(1, 1), device.name(),
                                      available_here(device, here)))
        return fail(Fault::device, *problem);
    result.model = prepared.info->name;
    result.device = device.name();
    result.device_name = device.facts().model;
    result.batch = options.training.batch;
    result.accumulate = options.training.accumulate;
    result.directory = directory->string();
    result.threads = threads_for(here);
    const CacheKey key = plan_key(values_of_plan(options), device, here.omp_threads.has_value(), data, build);
    if (!find_plan(cache, key, options.cache.force, result.plan)) {
        say(fmt::format("compiling {} with a batch of {} for {}", result.model, result.batch,
                        result.device_name));
        DP_TRY(make_plan(prepared, here, result.plan));
        for (const auto& note : result.plan.notes) say(note);
        if (device.name() == "cpu")
            result.plan.plan.peaks = peaks_of(options, here, result.plan.plan.choices);
        DP_TRY(cache.put(key, json_of(result.plan.plan), {}));
    }
    result.removed = cache.prune(options.cache.limit);
    result.cache_bytes = cache.bytes();
    result.seconds = seconds_since(started);
    const std::string json =
        compile_json(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (is_primary && options.output.json) DP_TRY(write_output(*options.output.json, json + "\n"));
    say(fmt::format("{}\n{}", compile_table(result), json));
    return {};
}

std::string compile_table(const CompileResult& r) {
    const auto row = [](std::string_view name, const std::string& value) {
        return fmt::format("  {:<10}{}\n", name, value);
    };
    const Plan& plan = r.plan.plan;
    std::string table =
        row("model", fmt::format("{} with a batch of {}{} for {}", r.model, r.batch,
                                 r.accumulate > 1 ? fmt::format(" x {}", r.accumulate) : "", r.device_name)) +
        row("data", data_text(r)) +
        row("plan", r.plan.made == Made::kept ? "cached before" : written(r.plan.was)) +
        row("memory", fmt::format("{} measured, planned {}", size_text(plan.peak), needs_text(plan.needs))) +
        row("step",
            plan.step_seconds < plan.plain_seconds
                ? fmt::format("{}, not tuned {}", time_text(plan.step_seconds), time_text(plan.plain_seconds))
                : time_text(plan.step_seconds));
    if (r.device == "cpu")
        table += row("threads", threads_text(r));
    else
        table += row("tuned", fmt::format("{} choices", plan.choices.all().size()));
    if (plan.peaks.flops > 0)
        table += row("peak", fmt::format("{:.1f} GFLOP/s, {:.1f} GB/s", plan.peaks.flops / 1e9,
                                         plan.peaks.bytes / 1e9));
    const std::string removed =
        r.removed == 0 ? "" : fmt::format("; least recently used entries removed: {}", r.removed);
    table += row("cache", fmt::format("{}, {} in all{}", r.directory, size_text(r.cache_bytes), removed));
    return table + fmt::format("  {:<10}{:.1f} s", "took", r.seconds);
}

nlohmann::ordered_json compile_json(const CompileResult& r) {
    const Plan& plan = r.plan.plan;
    nlohmann::ordered_json json{{"compiled", r.model},
                                {"device", r.device},
                                {"device_name", r.device_name},
                                {"batch_size", r.batch},
                                {"accumulate", r.accumulate},
                                {"cache", r.directory},
                                {"data", name_of(r.data.made)},
                                {"data_bytes", r.data.bytes},
                                {"data_seconds_without", r.data.load_seconds},
                                {"data_seconds_with", r.data.read_seconds},
                                {"plan", name_of(r.plan.made)},
                                {"memory_planned_bytes", plan.needs.total()},
                                {"memory_peak_bytes", plan.peak},
                                {"step_ms_untuned", plan.plain_seconds * 1e3},
                                {"step_ms", plan.step_seconds * 1e3},
                                {"peak_flops_per_second", plan.peaks.flops},
                                {"peak_bytes_per_second", plan.peaks.bytes},
                                {"choices", plan.choices.all().size()},
                                {"cache_bytes", r.cache_bytes},
                                {"cache_removed", r.removed}};
    if (r.device == "cpu") json["threads"] = threads_of(plan.choices, r.threads);
    json["seconds"] = r.seconds;
    return json;
}

}  // namespace dp::trainer
