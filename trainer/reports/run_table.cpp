// SPDX-License-Identifier: Apache-2.0
//
// See run_table.hpp.
#include "trainer/reports/run_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>
#include <type_traits>

namespace dp::trainer {
namespace {

using Json = nlohmann::json;

template <typename T>
std::optional<T> number_of(const Json& json, const char* key) {
    const auto found = json.find(key);
    const bool is_there = found != json.end() && found->is_number();
    // A count must not have a fraction or an exponent, with which it might not fit its type.
    if (!is_there || (std::is_integral_v<T> && !found->is_number_integer())) return std::nullopt;
    return found->get<T>();
}
std::string word_of(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The summary in a line, after any prefix (srun --label: "0: {...").
std::optional<RunRecord> summary_in(const std::string& line) {
    const auto begin = line.find("{\"model\":");
    if (begin == std::string::npos) return std::nullopt;
    const Json json =
        Json::parse(line.begin() + static_cast<std::ptrdiff_t>(begin), line.end(), nullptr, false);
    if (!json.is_object()) return std::nullopt;
    const auto ranks = number_of<std::int64_t>(json, "world_size");
    const auto seconds = number_of<double>(json, "train_seconds");
    const auto rate = number_of<double>(json, "samples_per_second");
    const auto all_steps = number_of<std::int64_t>(json, "steps").value_or(0);
    const auto resumed = number_of<std::int64_t>(json, "resumed_from_step").value_or(0);
    const bool nothing_was_left = resumed > 0 && resumed == all_steps;
    if (!ranks || *ranks < 1 || !seconds || !rate || !(*seconds > 0)) return std::nullopt;
    if (nothing_was_left ? *rate != 0 : !(*rate > 0)) return std::nullopt;
    return RunRecord{"",
                     word_of(json, "model"),
                     word_of(json, "device"),
                     number_of<std::int64_t>(json, "nodes"),
                     *ranks,
                     number_of<std::int64_t>(json, "threads"),
                     number_of<std::int64_t>(json, "global_batch_size"),
                     all_steps,
                     *seconds,
                     *rate,
                     number_of<double>(json, "final_loss"),
                     number_of<double>(json, "test_accuracy"),
                     word_of(json, "precision"),
                     resumed};
}

struct Instance {
    double seconds, samples_per_second;
    std::int64_t steps;
};

std::optional<Instance> instance_in(const std::string& line) {
    if (line.find("inner train loop time") == std::string::npos) return std::nullopt;
    // No number is longer. For unlimited repetitions std::regex needs stack for each character.
    static const std::regex kLine(
        R"(inner train loop time : ([0-9.e+-]{1,32}) for \d{1,15} epochs, number of global steps: (\d{1,15}), e2e samples_per_sec: ([0-9.e+-]{1,32}))");
    std::smatch found;
    if (!std::regex_search(line, found, kLine)) return std::nullopt;
    const Instance instance{std::strtod(found[1].str().c_str(), nullptr),
                            std::strtod(found[3].str().c_str(), nullptr), std::stoll(found[2].str())};
    if (!(instance.seconds > 0) || !(instance.samples_per_second > 0)) return std::nullopt;
    return instance;
}

RunRecord mean_of(const std::vector<Instance>& instances) {
    RunRecord run;
    run.ranks = static_cast<std::int64_t>(instances.size());
    run.steps = instances.front().steps;
    for (const Instance& instance : instances) {
        run.seconds += instance.seconds / static_cast<double>(instances.size());
        run.samples_per_second += instance.samples_per_second / static_cast<double>(instances.size());
    }
    return run;
}

bool has_trained(const RunRecord& run) {
    return run.samples_per_second > 0;
}

// If no run has trained, it is one that has not.
const RunRecord& baseline_of(const std::vector<const RunRecord*>& runs) {
    const bool accelerated = std::any_of(runs.begin(), runs.end(),
                                         [](auto* run) { return has_trained(*run) && run->device != "cpu"; });
    return **std::min_element(runs.begin(), runs.end(), [&](auto* a, auto* b) {
        const auto order = [&](const RunRecord& run) {
            return std::tuple(!has_trained(run), accelerated && run.device == "cpu", run.ranks);
        };
        return order(*a) < order(*b);
    });
}

// A column of both tables, for people and for programs.
struct Column {
    const char* title;
    const char* key;
    bool is_text;
    Json (*value)(const RunRow&);
    const char* format;  // of a number with a fraction, for people
};

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

const std::vector<Column>& columns() {
    static const std::vector<Column> kColumns{
        {"RUN", "run", true, [](const RunRow& row) { return Json(row.run.name); }, ""},
        {"MODEL", "model", true, [](const RunRow& row) { return Json(row.run.model); }, ""},
        {"DEVICE", "device", true, [](const RunRow& row) { return Json(row.run.device); }, ""},
        {"PRECISION", "precision", true, [](const RunRow& row) { return Json(row.run.precision); }, ""},
        {"NODES", "nodes", false, [](const RunRow& row) { return or_null(row.run.nodes); }, ""},
        {"RANKS", "ranks", false, [](const RunRow& row) { return Json(row.run.ranks); }, ""},
        {"THREADS", "threads", false, [](const RunRow& row) { return or_null(row.run.threads); }, ""},
        {"BATCH", "global_batch_size", false, [](const RunRow& row) { return or_null(row.run.global_batch); },
         ""},
        {"STEPS", "steps", false, [](const RunRow& row) { return Json(row.run.steps); }, ""},
        {"FROM", "resumed_from_step", false,
         [](const RunRow& row) { return row.run.resumed > 0 ? Json(row.run.resumed) : Json(); }, ""},
        {"SECONDS", "train_seconds", false, [](const RunRow& row) { return Json(row.run.seconds); },
         "{:.2f}"},
        {"MS/STEP", "step_ms", false,
         [](const RunRow& row) {
             const std::int64_t made = row.run.steps - row.run.resumed;
             return made > 0 ? Json(row.run.seconds * 1e3 / static_cast<double>(made)) : Json();
         },
         "{:.1f}"},
        {"SAMPLES/S", "samples_per_second", false,
         [](const RunRow& row) { return has_trained(row.run) ? Json(row.run.samples_per_second) : Json(); },
         "{:.2f}"},
        {"SPEED-UP", "speed_up", false, [](const RunRow& row) { return or_null(row.speed_up); }, "{:.2f}"},
        {"EFFICIENCY", "efficiency", false, [](const RunRow& row) { return or_null(row.efficiency); },
         "{:.2f}"},
        {"LOSS", "final_loss", false, [](const RunRow& row) { return or_null(row.run.loss); }, "{:.4g}"},
        {"ACCURACY", "test_accuracy", false, [](const RunRow& row) { return or_null(row.run.accuracy); },
         "{:.4f}"},
        {"AGAINST", "baseline", true, [](const RunRow& row) { return Json(row.baseline); }, ""}};
    return kColumns;
}

std::string cell_of(const Json& value, const char* format) {
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) return "-";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) return fmt::format(fmt::runtime(format), value.get<double>());
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

std::vector<RunRecord> find_runs(const std::string& name, std::istream& text) {
    std::vector<RunRecord> runs;
    std::vector<Instance> instances;
    for (std::string line; std::getline(text, line);) {
        if (auto run = summary_in(line))
            runs.push_back(std::move(*run));
        else if (const auto instance = instance_in(line))
            instances.push_back(*instance);
    }
    if (runs.empty() && !instances.empty()) runs.push_back(mean_of(instances));
    for (std::size_t i = 0; i < runs.size(); ++i)
        runs[i].name = i == 0 ? name : fmt::format("{}#{}", name, i + 1);
    return runs;
}

std::vector<RunRow> compare_runs(const std::vector<RunRecord>& runs) {
    std::vector<std::string> models;
    for (const RunRecord& run : runs)
        if (std::find(models.begin(), models.end(), run.model) == models.end()) models.push_back(run.model);
    std::vector<RunRow> rows;
    for (const std::string& model : models) {
        std::vector<const RunRecord*> same;
        for (const RunRecord& run : runs)
            if (run.model == model) same.push_back(&run);
        const RunRecord& baseline = baseline_of(same);
        for (const RunRecord* run : same) {
            RunRow row{*run, baseline.name, std::nullopt, std::nullopt};
            if (has_trained(*run)) row.speed_up = run->samples_per_second / baseline.samples_per_second;
            if (row.speed_up && run->device == baseline.device)
                row.efficiency =
                    *row.speed_up * static_cast<double>(baseline.ranks) / static_cast<double>(run->ranks);
            rows.push_back(std::move(row));
        }
    }
    return rows;
}

std::string text_table(const std::vector<RunRow>& rows) {
    std::vector<std::vector<std::string>> lines(rows.size() + 1);
    for (const Column& column : columns()) {
        std::vector<std::string> cells{column.title};
        for (const RunRow& row : rows) cells.push_back(cell_of(column.value(row), column.format));
        // Leaves out columns that are empty for all runs.
        if (std::all_of(cells.begin() + 1, cells.end(), [](const auto& cell) { return cell == "-"; }))
            continue;
        std::size_t width = 0;
        for (const auto& cell : cells) width = std::max(width, cell.size());
        for (std::size_t i = 0; i < cells.size(); ++i)
            lines[i].push_back(column.is_text ? fmt::format("{:<{}}", cells[i], width)
                                              : fmt::format("{:>{}}", cells[i], width));
    }
    std::string table;
    for (const auto& line : lines) {
        std::string text = fmt::format("{}", fmt::join(line, "  "));
        text.erase(text.find_last_not_of(' ') + 1);
        table += text + "\n";
    }
    return table;
}

std::string csv_table(const std::vector<RunRow>& rows) {
    std::vector<std::string> keys;
    for (const Column& column : columns()) keys.emplace_back(column.key);
    std::string table = fmt::format("{}\n", fmt::join(keys, ","));
    for (const RunRow& row : rows) {
        std::vector<std::string> cells;
        for (const Column& column : columns()) cells.push_back(csv_cell(column.value(row)));
        table += fmt::format("{}\n", fmt::join(cells, ","));
    }
    return table;
}

nlohmann::ordered_json json_table(const std::vector<RunRow>& rows) {
    auto table = nlohmann::ordered_json::array();
    for (const RunRow& row : rows) {
        nlohmann::ordered_json object;
        for (const Column& column : columns()) object[column.key] = column.value(row);
        table.push_back(std::move(object));
    }
    return table;
}

}  // namespace dp::trainer
