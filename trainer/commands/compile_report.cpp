// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/compile_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/devices/cpu/cpu.hpp"

namespace dp::trainer {
namespace {

std::string compile_time_text(double seconds) {
    return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

// "written", or "written again, because it was stale (build)".
std::string written(const std::string& why) {
    return why.empty() ? "written" : fmt::format("written again, because it was {}", why);
}

std::string data_text(const CompileResult& r) {
    if (r.data == Made::none) return "is made as fast as it would be read; nothing to keep";
    return fmt::format("{} {}: {} to load without it, {} with it", size_text(r.data_bytes),
                       r.data == Made::kept ? "were there" : written(r.data_was),
                       compile_time_text(r.load_seconds), compile_time_text(r.read_seconds));
}

std::string threads_text(const CompileResult& r) {
    const int chosen = threads_of(r.planned.choices, r.threads);
    std::string text = chosen == r.threads ? fmt::format("{}", r.threads)
                                           : fmt::format("{} instead of {}", chosen, r.threads);
    std::string tried;
    for (const ThreadTrial& trial : r.trials)
        tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", trial.threads,
                             compile_time_text(trial.step.seconds));
    if (is_disturbed(r.trials))
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
    const Plan& plan = r.planned;
    std::string table =
        row("model", fmt::format("{} with a batch of {}{} for {}", r.model, r.batch,
                                 r.accumulate > 1 ? fmt::format(" x {}", r.accumulate) : "", r.device_name)) +
        row("data", data_text(r)) + row("plan", r.plan == Made::kept ? "was there" : written(r.plan_was)) +
        row("memory",
            fmt::format("{} measured, {}", size_text(plan.peak), "planned " + needs_text(plan.needs))) +
        row("step", plan.step_seconds < plan.plain_seconds
                        ? fmt::format("{}, not tuned {}", compile_time_text(plan.step_seconds),
                                      compile_time_text(plan.plain_seconds))
                        : compile_time_text(plan.step_seconds));
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
    const Plan& plan = r.planned;
    nlohmann::ordered_json json{{"compiled", r.model},
                                {"device", r.device},
                                {"device_name", r.device_name},
                                {"batch_size", r.batch},
                                {"accumulate", r.accumulate},
                                {"cache", r.directory},
                                {"data", name_of(r.data)},
                                {"data_bytes", r.data_bytes},
                                {"data_seconds_without", r.load_seconds},
                                {"data_seconds_with", r.read_seconds},
                                {"plan", name_of(r.plan)},
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
