// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include "common/text.hpp"

namespace dp {
namespace {

Try<bool> flag(std::string_view name, std::string_view value) {
    if (value.empty() || value == "1" || value == "yes" || value == "on") return true;
    if (value == "0" || value == "no" || value == "off") return false;
    return fail("--" + std::string(name) + "=" + printable(value, 40) + ": takes no value; give --" +
                std::string(name) + " alone");
}

}  // namespace

const std::vector<OptionSpec>& option_specs() {
    static const std::vector<OptionSpec> specs = {
        {"dp-world", "SLURM_DP_WORLD", "auto|N",
         "start the step as one data-parallel world: every task a rank (auto), or insist on N tasks"},
        {"dp-timeout", "SLURM_DP_TIMEOUT", "SECONDS", "how long ranks may take to arrive (default 300)"},
        {"dp-verbose", "SLURM_DP_VERBOSE", nullptr, "print ranks, nodes, addresses and ports, then launch"},
        {"dp-dry-run", "SLURM_DP_DRY_RUN", nullptr, "print ranks, nodes, addresses and ports, run nothing"},
    };
    return specs;
}

Try<void> set_option(Settings& settings, std::string_view name, std::string_view value) {
    if (name == "dp-world") {
        if (value == "auto") {
            settings.world = 0;
            return {};
        }
        auto ranks = parse_number<uint32_t>(value);
        if (!ranks || *ranks == 0 || *ranks > kMaxWorldSize)
            return fail("--dp-world=" + printable(value, 40) +
                        ": not a number of ranks; give auto (every task of the step is a rank) or a number "
                        "from 1 to " +
                        std::to_string(kMaxWorldSize));
        settings.world = *ranks;
        return {};
    }
    if (name == "dp-timeout") {
        auto seconds = parse_number<uint32_t>(value);
        if (!seconds || *seconds == 0 || *seconds > kMaxTimeoutSeconds)
            return fail("--dp-timeout=" + printable(value, 40) +
                        ": not a number of seconds; give a whole number from 1 to " +
                        std::to_string(kMaxTimeoutSeconds));
        settings.timeout_seconds = *seconds;
        return {};
    }
    if (name == "dp-verbose" || name == "dp-dry-run") {
        auto on = flag(name, value);
        if (!on) return tl::make_unexpected(on.error());
        (name == "dp-verbose" ? settings.verbose : settings.dry_run) = *on;
        return {};
    }
    return fail("--" + printable(name, 40) + ": no such option of slurm-dp");
}

Try<Settings> settings_from_environment(const GetVariable& get) {
    Settings settings;
    for (const auto& spec : option_specs()) {
        auto value = get(spec.variable);
        if (!value || value->empty()) continue;  // set to nothing: how people unset
        if (auto set = set_option(settings, spec.name, *value); !set)
            return fail(std::string("the environment has ") + spec.variable + "=" + printable(*value, 40) +
                        ", which is " + set.error().message);
    }
    return settings;
}

std::vector<std::pair<std::string, std::string>> settings_to_environment(const Settings& settings) {
    std::vector<std::pair<std::string, std::string>> out;
    if (settings.world)
        out.emplace_back("SLURM_DP_WORLD", *settings.world == 0 ? "auto" : std::to_string(*settings.world));
    if (settings.timeout_seconds)
        out.emplace_back("SLURM_DP_TIMEOUT", std::to_string(*settings.timeout_seconds));
    if (settings.verbose) out.emplace_back("SLURM_DP_VERBOSE", *settings.verbose ? "1" : "0");
    if (settings.dry_run) out.emplace_back("SLURM_DP_DRY_RUN", *settings.dry_run ? "1" : "0");
    return out;
}

Settings merge(const Settings& strong, const Settings& weak) {
    Settings out = strong;
    if (!out.world) out.world = weak.world;
    if (!out.timeout_seconds) out.timeout_seconds = weak.timeout_seconds;
    if (!out.verbose) out.verbose = weak.verbose;
    if (!out.dry_run) out.dry_run = weak.dry_run;
    return out;
}

WorldDecision decide_world(uint32_t asked, uint32_t tasks, bool insist) {
    if (asked == 0 || asked == tasks) return WorldDecision::apply;
    return insist ? WorldDecision::refuse : WorldDecision::leave_alone;
}

std::string world_refusal(uint32_t asked, uint32_t tasks) {
    return "--dp-world=" + std::to_string(asked) + ", but this step has " + plural(tasks, "task") +
           "; give -n " + std::to_string(asked) + " (or --dp-world=auto for " + std::to_string(tasks) + ")";
}

}  // namespace dp
