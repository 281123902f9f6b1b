// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/compile_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/commands/measure.hpp"
#include "trainer/devices/cpu/cpu.hpp"

namespace dp::trainer {
namespace {

// "written", or "written again, because it was stale (build)".
std::string written(const std::string& why) {
    return why.empty() ? "written" : fmt::format("written again, because it was {}", why);
}

std::string data_text(const CompileResult& r) {
    if (r.data.made == Made::none) return "is made as fast as it would be read; nothing to keep";
    return fmt::format("{} {}: {} to load without it, {} with it", size_text(r.data.bytes),
                       r.data.made == Made::kept ? "were there" : written(r.data.was),
                       time_text(r.data.load_seconds), time_text(r.data.read_seconds));
}

std::string threads_text(const CompileResult& r) {
    const int chosen = threads_of(r.plan.plan.choices, r.threads);
    std::string text = chosen == r.threads ? fmt::format("{}", r.threads)
                                           : fmt::format("{} instead of {}", chosen, r.threads);
    std::string tried;
    for (const ThreadTrial& trial : r.plan.trials)
        tried +=
            fmt::format("{}{}: {}", tried.empty() ? "" : ", ", trial.threads, time_text(trial.step.seconds));
    if (is_disturbed(r.plan.trials))
        tried += "; not tuned, because other programs used the CPUs meanwhile: --force tries again";
    return tried.empty() ? text : fmt::format("{} (a step with {})", text, tried);
}

const char* name_of(Made made) {
    return made == Made::none ? "none" : made == Made::kept ? "kept" : "made";
}

}  // namespace

std::string compile_table(const CompileResult& r) {
    const auto row = [](std::string_view name, const std::string& value) {
        return fmt::format("  {:<10}{}\n", name, value);
    };
    const Plan& plan = r.plan.plan;
    std::string table =
        row("model", fmt::format("{} with a batch of {}{} for {}", r.model, r.batch,
                                 r.accumulate > 1 ? fmt::format(" x {}", r.accumulate) : "", r.device_name)) +
        row("data", data_text(r)) +
        row("plan", r.plan.made == Made::kept ? "was there" : written(r.plan.was)) +
        row("memory",
            fmt::format("{} measured, {}", size_text(plan.peak), "planned " + needs_text(plan.needs))) +
        row("step",
            plan.step_seconds < plan.plain_seconds
                ? fmt::format("{}, not tuned {}", time_text(plan.step_seconds), time_text(plan.plain_seconds))
                : time_text(plan.step_seconds));
    if (r.device == "cpu")
        table += row("threads", threads_text(r));
    else
        table += row("tuned", fmt::format("{} choices", plan.choices.all().size()));
    const std::string removed =
        r.removed == 0 ? ""
                       : fmt::format("; {} removed that {} used longest ago",
                                     r.removed == 1 ? "1 entry" : fmt::format("{} entries", r.removed),
                                     r.removed == 1 ? "was" : "were");
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
                                {"choices", plan.choices.all().size()},
                                {"cache_bytes", r.cache_bytes},
                                {"cache_removed", r.removed}};
    if (r.device == "cpu") json["threads"] = threads_of(plan.choices, r.threads);
    json["seconds"] = r.seconds;
    return json;
}

}  // namespace dp::trainer
