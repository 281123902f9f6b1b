// SPDX-License-Identifier: Apache-2.0
//
// See plan.hpp.
#include "trainer/compile/plan.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace dp::trainer {
namespace {

using Json = nlohmann::json;

// An allowance for what a run may do besides and the plan does not know of: logs, for instance.
constexpr std::int64_t kSmallThings = 64 << 10;

}  // namespace

CacheKey plan_key(const PlanCase& c, const std::string& build) {
    const DeviceFacts device = c.device.facts();
    Facts what = c.options;
    what["device"] = device.model;
    what["threads"] = c.threads_given ? "given" : "free";
    what["data"] = text_of(c.data.what);
    return {"plan",
            std::move(what),
            {{"build", build}, {"libraries", device.software}, {"data", text_of(c.data.from)}}};
}

Json json_of(const Plan& plan) {
    Json choices = Json::object();
    // As numbers: choices may be any bytes, while JSON's text is UTF-8.
    for (const auto& [what, choice] : plan.choices.all())
        choices[what] = std::vector<std::uint8_t>(choice.begin(), choice.end());
    return {{"parameters", plan.needs.parameters},
            {"gradients", plan.needs.gradients},
            {"optimizer", plan.needs.optimizer},
            {"activations", plan.needs.activations},
            {"copies", plan.needs.copies},
            {"data", plan.needs.data},
            {"peak", plan.peak},
            {"plain_seconds", plan.plain_seconds},
            {"step_seconds", plan.step_seconds},
            {"choices", std::move(choices)}};
}

std::optional<Plan> plan_of(const Json& json) {
    try {
        Plan plan;
        plan.needs = {json.at("parameters"),  json.at("gradients"), json.at("optimizer"),
                      json.at("activations"), json.at("copies"),    json.at("data")};
        plan.peak = json.at("peak");
        plan.plain_seconds = json.at("plain_seconds");
        plan.step_seconds = json.at("step_seconds");
        for (const auto& [what, choice] : json.at("choices").items()) {
            const auto bytes = choice.get<std::vector<std::uint8_t>>();
            plan.choices.set(what, {bytes.begin(), bytes.end()});
        }
        return plan;
    } catch (const Json::exception&) {
        return std::nullopt;
    }
}

std::optional<std::string> planned_problem(std::string_view model, const MemoryCase& c, std::int64_t peak,
                                           std::string_view device, std::int64_t available) {
    const std::int64_t saved = saved_by_sharing(c);
    if (peak - saved + kSmallThings <= available) return std::nullopt;
    return fmt::format(
        "{} with a batch of {} took {} when it was compiled{}, and {} has {}; give a smaller --batch-size: "
        "{}",
        model, c.settings.batch, size_text(peak),
        saved > 0 ? fmt::format(", {} where ranks of a node share memory", size_text(peak - saved)) : "",
        device, size_text(available), batch_advice(c, available));
}

}  // namespace dp::trainer
