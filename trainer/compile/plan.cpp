// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/plan.hpp"

#include <fmt/format.h>

namespace dp::trainer {

namespace {

using Json = nlohmann::json;

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryNeeds, parameters, gradients, optimizer, activations, copies, data)

// As numbers: choices may be any bytes, while JSON's text is UTF-8.
static void to_json(Json& json, const TunedChoices& choices) {
    json = Json::object();
    for (const auto& [what, choice] : choices.all())
        json[what] = std::vector<std::uint8_t>(choice.begin(), choice.end());
}
static void from_json(const Json& json, TunedChoices& choices) {
    for (const auto& [what, choice] : json.items()) {
        const auto bytes = choice.get<std::vector<std::uint8_t>>();
        choices.set(what, {bytes.begin(), bytes.end()});
    }
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peaks, flops, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plan, needs, peak, plain_seconds, step_seconds, choices, peaks)

CacheKey plan_key(const Facts& options, const Device& device, bool threads_given, const CacheKey& data,
                  const std::string& build) {
    const DeviceFacts facts = device.facts();
    Facts what = options;
    what[kDeviceFact] = facts.model;
    what["threads"] = threads_given ? "given" : "free";
    what["data"] = text_of(data.what);
    return {"plan",
            std::move(what),
            {{"build", build}, {"libraries", facts.software}, {"data", text_of(data.from)}}};
}

Json json_of(const Plan& plan) {
    return plan;
}

std::optional<Plan> plan_of(const Json& json) {
    try {
        return json.get<Plan>();
    } catch (const Json::exception&) {
        return std::nullopt;
    }
}

std::optional<std::string> planned_problem(std::string_view model, const MemoryCase& c, std::int64_t peak,
                                           std::string_view device, std::int64_t available) {
    // An allowance for what a run may do besides and the plan does not know of: logs, for instance.
    constexpr std::int64_t kSmallThings = 64 << 10;
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
