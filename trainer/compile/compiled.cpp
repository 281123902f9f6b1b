// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/compiled.hpp"

#include <fmt/format.h>

namespace dp::trainer {

Compiled::Compiled(const std::optional<std::filesystem::path>& directory, DataRequest data)
    : request_(std::move(data)) {
    if (!directory) return;
    cache_.emplace(*directory);
    build_ = build_of_this_program();
    data_key_ = data_key(request_, build_);
}

const Plan* Compiled::plan(const Facts& options, bool threads_given, Device& device) {
    if (!cache_) return nullptr;
    plan_key_ = plan_key(options, device, threads_given, data_key_, build_);
    found_plan_ = cache_->find(plan_key_);
    if (!found_plan_.entry) return nullptr;
    plan_ = plan_of(found_plan_.entry->content);
    if (!plan_) {
        found_plan_ = {std::nullopt, "damaged"};
        return nullptr;
    }
    device.adopt(plan_->choices);
    return &*plan_;
}

Result<Dataset> Compiled::load() {
    if (!cache_ || !is_worth_storing(request_)) return dp::trainer::load(request_);
    found_data_ = cache_->find(data_key_);
    if (!found_data_.entry) return dp::trainer::load(request_);
    auto data = read_data(*found_data_.entry, request_);
    // For text a failure is not the entry's fault, but the caller then reports the same.
    if (data || request_.set == DataSet::tokens) return data;
    found_data_ = {std::nullopt, data.error().message};
    return dp::trainer::load(request_);
}

// Not for CPUs: the device's name changes with a job's threads.
std::string Compiled::of_another_gpu() const {
    if (found_plan_.entry || !found_plan_.why_not.empty()) return "";
    const auto here = plan_key_.what.find(kDeviceFact);
    const auto is_gpu = [](const std::string& device) { return device.starts_with("cuda"); };
    if (here == plan_key_.what.end() || !is_gpu(here->second)) return "";
    const auto other = cache_->other_value(plan_key_, kDeviceFact);
    if (!other || !is_gpu(*other)) return "";
    return fmt::format(
        "no plan for '{}', only for '{}': run `trainer compile` with these options on a node that has it",
        here->second, *other);
}

std::optional<std::string> Compiled::line(double now) const {
    if (!cache_) return std::nullopt;
    std::string used, stale;
    for (const auto& [name, found] : {std::pair("plan", &found_plan_), std::pair("data", &found_data_)}) {
        if (found->entry)
            used += fmt::format("{}{} of {} ago", used.empty() ? "" : ", ", name,
                                age_text(static_cast<std::int64_t>(now) - found->entry->written));
        if (!found->why_not.empty())
            stale += fmt::format("{}the {} is {}", stale.empty() ? "" : ", ", name, found->why_not);
    }
    const std::string elsewhere = of_another_gpu();
    if (used.empty() && stale.empty() && elsewhere.empty()) return std::nullopt;
    const auto threads = plan_ ? plan_->choices.find("threads") : std::nullopt;
    if (threads) used += fmt::format("; {} thread{}", *threads, *threads == "1" ? "" : "s");
    if (!stale.empty())
        used +=
            fmt::format("{}{}; `trainer compile` makes it again", used.empty() ? "" : "; not used: ", stale);
    if (!elsewhere.empty()) used += (used.empty() ? "" : "; ") + elsewhere;
    return fmt::format("compiled: {}, in {}", used, cache_->directory().string());
}

}  // namespace dp::trainer
