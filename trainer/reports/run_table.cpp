// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/run_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "trainer/reports/other_logs.hpp"

namespace dp::trainer {
namespace {

using Json = nlohmann::ordered_json;
using Runs = std::vector<Json>;

enum class Kind { text, count, number };

struct Column {
    const char* title;
    const char* key;  // in JSON and CSV
    Kind kind;
    const char* format = "";  // of a number, for people
};
constexpr std::array<Column, 19> kColumns{{{"RUN", "run", Kind::text},
                                           {"MODEL", "model", Kind::text},
                                           {"DEVICE", "device", Kind::text},
                                           {"PRECISION", "precision", Kind::text},
                                           {"NODES", "nodes", Kind::count},
                                           {"RANKS", "ranks", Kind::count},
                                           {"THREADS", "threads", Kind::count},
                                           {"BATCH", "global_batch_size", Kind::count},
                                           {"STEPS", "steps", Kind::count},
                                           {"FROM", "resumed_from_step", Kind::count},
                                           {"SECONDS", "train_seconds", Kind::number, "{:.2f}"},
                                           {"MS/STEP", "step_ms", Kind::number, "{:.1f}"},
                                           {"SAMPLES/S", "samples_per_second", Kind::number, "{:.2f}"},
                                           {"SPEED-UP", "speed_up", Kind::number, "{:.2f}"},
                                           {"EFFICIENCY", "efficiency", Kind::number, "{:.2f}"},
                                           {"LOSS", "final_loss", Kind::number, "{:.4g}"},
                                           {"ACCURACY", "test_accuracy", Kind::number, "{:.4f}"},
                                           {"AGAINST", "baseline", Kind::text},
                                           {"LOG", "log", Kind::text}}};

// A count must not have a fraction or an exponent, with which it might not fit its type.
Json value_of(const Json& summary, const Column& column) {
    const Json value = summary.value(column.key, Json());
    if (column.kind == Kind::text) return value.is_string() ? value : Json("");
    if (column.kind == Kind::count) return value.is_number_integer() ? value : Json();
    return value.is_number() ? Json(value.get<double>()) : Json();
}

// null where it is NaN or infinite: any number may be in a log.
Json finite(double number) {
    return std::isfinite(number) ? Json(number) : Json();
}

// 0 where it is not known.
double number_of(const Json& run, const char* key) {
    return run[key].is_number() ? run[key].get<double>() : 0;
}

bool has_trained(const Json& run) {
    return number_of(run, "samples_per_second") > 0;
}

// Of an object.
Json row_of(Json summary) {
    summary["ranks"] = summary.value("world_size", Json());
    Json run;
    for (const Column& column : kColumns) run[column.key] = value_of(summary, column);
    return run;
}

std::optional<Json> run_of(Json summary) {
    if (!summary.is_object()) return std::nullopt;
    summary["log"] = "";  // ours
    Json run = row_of(std::move(summary));
    if (run["steps"].is_null()) run["steps"] = 0;
    const bool nothing_was_left = number_of(run, "resumed_from_step") > 0 &&
                                  run["resumed_from_step"] == run["steps"] && run["samples_per_second"] == 0;
    if (nothing_was_left) run["samples_per_second"] = nullptr;
    const bool is_whole = number_of(run, "ranks") >= 1 && number_of(run, "train_seconds") > 0 &&
                          (nothing_was_left || has_trained(run));
    return is_whole ? std::optional(run) : std::nullopt;
}

// The summary in a line, after any prefix (srun --label: "0: {...").
std::optional<Json> summary_in(const std::string& line) {
    const auto begin = line.find("{\"model\":");
    if (begin == std::string::npos) return std::nullopt;
    return run_of(Json::parse(line.substr(begin), nullptr, false));
}

// If no run has trained, it is one that has not.
Json baseline_of(Runs::const_iterator first, Runs::const_iterator last) {
    const auto is_accelerated = [](const Json& run) {
        return run["device"] != "cpu" && run["device"] != "";  // "": nobody said
    };
    const bool accelerated =
        std::any_of(first, last, [&](const Json& run) { return has_trained(run) && is_accelerated(run); });
    const auto order = [&](const Json& run) {
        const double ranks = number_of(run, "ranks");
        return std::tuple(!has_trained(run), accelerated && !is_accelerated(run),
                          ranks > 0 ? ranks : std::numeric_limits<double>::infinity());
    };
    return *std::min_element(first, last, [&](const Json& a, const Json& b) { return order(a) < order(b); });
}

void compare(Json& run, const Json& baseline) {
    run["baseline"] = baseline["run"];
    const double steps = number_of(run, "steps") - number_of(run, "resumed_from_step");
    run["step_ms"] = steps > 0 ? finite(number_of(run, "train_seconds") * 1e3 / steps) : Json();
    if (!has_trained(run)) return;
    const double speed_up = number_of(run, "samples_per_second") / number_of(baseline, "samples_per_second");
    run["speed_up"] = finite(speed_up);
    const bool are_counted = number_of(run, "ranks") > 0 && number_of(baseline, "ranks") > 0;
    if (are_counted && run["device"] == baseline["device"])
        run["efficiency"] = finite(speed_up * number_of(baseline, "ranks") / number_of(run, "ranks"));
}

std::string cell_of(const Json& value, const Column& column) {
    if (value.is_null() || value == "") return "-";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) return fmt::format(fmt::runtime(column.format), value.get<double>());
    return value.dump();
}

// RFC 4180: cells with a comma, a quote or a line end are quoted.
std::string csv_cell(const Json& value) {
    if (value.is_null()) return "";
    if (!value.is_string()) return value.dump();
    std::string text = value.get<std::string>();
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
    return '"' + text + '"';
}

}  // namespace

Runs find_runs(const std::string& name, std::istream& text) {
    Runs runs;
    OtherLogs others;
    for (std::string line; std::getline(text, line);) {
        if (auto run = summary_in(line))
            runs.push_back(std::move(*run));
        else
            others.see(line);
    }
    if (runs.empty())
        for (auto& summary : others.summaries()) runs.push_back(row_of(std::move(summary)));
    for (std::size_t i = 0; i < runs.size(); ++i)
        runs[i]["run"] = i == 0 ? name : fmt::format("{}#{}", name, i + 1);
    return runs;
}

Runs compare_runs(Runs runs) {
    std::set<Json> ours;
    for (const Json& run : runs)
        if (run["log"] == "") ours.insert(run["model"]);
    const auto model_of = [&](const Json& run) {
        return run["model"] == "" && ours.size() == 1 ? *ours.begin() : run["model"];
    };
    for (auto first = runs.begin(); first != runs.end();) {
        const auto last = std::stable_partition(
            first, runs.end(),
            [&, model = model_of(*first)](const Json& run) { return model_of(run) == model; });
        const Json baseline = baseline_of(first, last);
        for (; first != last; ++first) compare(*first, baseline);
    }
    return runs;
}

std::string text_table(const Runs& runs) {
    std::vector<std::string> lines(runs.size() + 1);
    for (const Column& column : kColumns) {
        std::vector<std::string> cells{column.title};
        for (const Json& run : runs) cells.push_back(cell_of(run[column.key], column));
        // Leaves out columns that are empty for all runs.
        if (std::all_of(cells.begin() + 1, cells.end(), [](const auto& cell) { return cell == "-"; }))
            continue;
        std::size_t width = 0;
        for (const auto& cell : cells) width = std::max(width, cell.size());
        const char* const format = column.kind == Kind::text ? "{:<{}}  " : "{:>{}}  ";
        for (std::size_t i = 0; i < cells.size(); ++i)
            lines[i] += fmt::format(fmt::runtime(format), cells[i], width);
    }
    for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
    return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string csv_table(const Runs& runs) {
    std::vector<std::string> cells;
    for (const Column& column : kColumns) cells.emplace_back(column.key);
    std::string table = fmt::format("{}\n", fmt::join(cells, ","));
    for (const Json& run : runs) {
        cells.clear();
        for (const Column& column : kColumns) cells.push_back(csv_cell(run[column.key]));
        table += fmt::format("{}\n", fmt::join(cells, ","));
    }
    return table;
}

Result<void> report_runs(const ReportOptions& options) {
    Runs runs;
    for (const auto& file : options.files) {
        std::error_code ignored;
        std::ifstream text(file);
        if (!text) return fail_with_errno(Fault::usage, file.string() + ": cannot read");
        const auto found =
            std::filesystem::is_directory(file, ignored) ? Runs() : find_runs(file.string(), text);
        if (found.empty())
            return fail(
                Fault::usage,
                fmt::format("{}: no summary of a run; give files of --json, or outputs of finished runs",
                            file.string()));
        runs.insert(runs.end(), found.begin(), found.end());
    }
    runs = compare_runs(std::move(runs));
    if (options.json)
        fmt::print("{}\n", Json(runs).dump(2, ' ', false, Json::error_handler_t::replace));
    else
        fmt::print("{}", options.csv ? csv_table(runs) : text_table(runs));
    return {};
}

}  // namespace dp::trainer
