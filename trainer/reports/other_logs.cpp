// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/other_logs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostCounted = 1e15;  // above, a double has no whole numbers in between

bool has(const std::string& line, const char* text) {
    return line.find(text) != std::string::npos;
}

// The number behind the first `key`; NaN where there is none, or it is not finite.
double after(const std::string& line, std::string_view key) {
    constexpr std::size_t kLongest = 40;
    const auto at = line.find(key);
    if (at == std::string::npos) return kNone;
    const std::string text = line.substr(at + key.size(), kLongest);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const auto length = static_cast<std::size_t>(end - text.c_str());
    return length > 0 && length < kLongest && std::isfinite(number) ? number : kNone;
}

// An amount that a run may have, so that quotients of two are numbers, too.
bool is_good(double number) {
    return number > 1e-30 && number < 1e30;
}
bool is_count(double number) {
    return number >= 1 && number <= kMostCounted && number == std::floor(number);
}

// null where it is not known.
nlohmann::ordered_json count(double number) {
    return is_count(number) ? nlohmann::ordered_json(static_cast<std::int64_t>(number)) : nullptr;
}
nlohmann::ordered_json amount(double number) {
    return std::isfinite(number) ? nlohmann::ordered_json(number) : nullptr;
}

}  // namespace

void OtherLogs::see(const std::string& line) {
    see_pytorch(line);
    see_megatron(line);
    see_samba(line);
    see_script(line);
}

void OtherLogs::see_pytorch(const std::string& line) {
    if (const double ranks = after(line, "WORLD_SIZE: "); is_count(ranks)) pytorch_.ranks = ranks;
    if (has(line, "Utilizing GPU")) pytorch_.device = "cuda";
    if (has(line, "Utilizing CPU")) pytorch_.device = "cpu";
    if (has(line, "Rank ") && has(line, " on Node "))
        pytorch_.nodes = std::max(pytorch_.nodes, after(line, " on Node ") + 1);
    if (const auto at = line.find("Train Epoch: "); at != std::string::npos) {
        const std::string told = line.substr(at);
        pytorch_.epochs = after(told, "Train Epoch: ");
        pytorch_.samples = after(told, "/");
        pytorch_.loss = after(told, "Loss: ");
    }
    const double seconds = after(line, "Training time = ");
    if (!is_good(seconds)) return;
    const double samples = pytorch_.epochs * pytorch_.samples;
    if (is_count(pytorch_.epochs) && is_count(pytorch_.samples))
        ended_.push_back({{"log", "pytorch"},
                          {"device", pytorch_.device},
                          {"nodes", count(pytorch_.nodes)},
                          {"world_size", count(pytorch_.ranks)},
                          {"train_seconds", seconds},
                          {"samples_per_second", samples / seconds},
                          {"final_loss", amount(pytorch_.loss)}});
    pytorch_ = {};
}

void OtherLogs::see_megatron(const std::string& line) {
    if (const double ranks = after(line, "using world size: "); is_count(ranks)) {
        end_megatron();
        megatron_.ranks = ranks;
    }
    const double milliseconds = after(line, "elapsed time per iteration (ms): ");
    if (!is_good(milliseconds)) return;
    const double iteration = after(line, "iteration "), batch = after(line, "global batch size: ");
    if (is_count(iteration) && is_count(batch))
        megatron_.lines.push_back({iteration, milliseconds, batch, after(line, "lm loss: ")});
}

// A line is about the iterations since the one before; of the first one, of as many as of the second.
void OtherLogs::end_megatron() {
    const auto [ranks, lines] = std::exchange(megatron_, {});
    if (lines.empty()) return;
    const double first = lines.front().iteration, interval = lines.size() > 1 && lines[1].iteration > first
                                                                 ? lines[1].iteration - first
                                                                 : first;
    double before = std::max(first - interval, 0.0), seconds = 0, samples = 0;
    const double resumed = before;
    for (const auto& line : lines) {
        const double iterations = line.iteration - before;
        before = line.iteration;
        if (iterations <= 0) continue;  // went back to a checkpoint
        seconds += iterations * line.milliseconds / 1e3;
        samples += iterations * line.batch;
    }
    if (!is_good(seconds)) return;
    ended_.push_back({{"log", "megatron"},
                      {"model", "gpt"},
                      {"world_size", count(ranks)},
                      {"global_batch_size", count(lines.back().batch)},
                      {"steps", count(lines.back().iteration)},
                      {"resumed_from_step", count(resumed)},
                      {"train_seconds", seconds},
                      {"samples_per_second", samples / seconds},
                      {"final_loss", amount(lines.back().loss)}});
}

void OtherLogs::see_samba(const std::string& line) {
    Instance one{after(line, "inner train loop time : "), after(line, "e2e samples_per_sec: "), {}, kNone};
    if (is_good(one.seconds) && is_good(one.rate) && is_count(after(line, " for "))) {
        const double steps = after(line, "number of global steps: ");
        if (is_count(steps)) one.steps = static_cast<std::int64_t>(steps);
        instances_.push_back(one);
    }
    one = {after(line, "'e2e_train_time': "),
           after(line, "'training_sequences_per_second': "),
           {},
           after(line, "'final_loss': ")};
    if (is_good(one.seconds) && is_good(one.rate)) language_.push_back(one);
}

// Where a model's summary stands beside the lines of its instances, it has the loss.
void OtherLogs::end_samba() {
    const auto& lines = instances_.empty() ? language_ : instances_;
    if (lines.empty()) return;
    const auto size = static_cast<double>(lines.size());
    double seconds = 0, rate = 0;
    for (const Instance& one : lines) {
        seconds += one.seconds / size;
        rate += one.rate / size;
    }
    Json summary{{"log", "samba"}, {"train_seconds", seconds}, {"samples_per_second", rate}};
    // One of them may print the summary for all.
    if (!instances_.empty() || lines.size() > 1) summary["world_size"] = lines.size();
    if (lines.front().steps) summary["steps"] = *lines.front().steps;
    if (!language_.empty()) {
        summary["model"] = "gpt";
        summary["final_loss"] = amount(language_.back().loss);
    }
    ended_.push_back(std::move(summary));
    instances_.clear();
    language_.clear();
}

void OtherLogs::see_script(const std::string& line) {
    constexpr std::string_view kModel = "Model: ";
    if (line.starts_with(kModel)) script_ = printable(line.substr(kModel.size()), 40);
    const double seconds = line.starts_with("Duration: ") ? after(line, "Duration: ") : kNone;
    if (script_.empty() || !is_good(seconds)) return;
    ended_.push_back({{"log", "script"}, {"model", script_}, {"train_seconds", seconds}});
    script_.clear();
}

std::vector<nlohmann::ordered_json> OtherLogs::summaries() {
    end_megatron();
    end_samba();
    return std::exchange(ended_, {});
}

}  // namespace dp::trainer
