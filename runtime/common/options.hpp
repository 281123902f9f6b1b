// SPDX-License-Identifier: Apache-2.0
//
// The --dp-* options: one table of what there is, how a value is checked, and which of several sources wins.
// Pure; the plugin feeds it from srun's command line, the environment and plugstack.conf, dpctl from its own
// command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/environment.hpp"
#include "common/result.hpp"

namespace dp {

inline constexpr uint32_t kDefaultTimeoutSeconds = 300;
inline constexpr uint32_t kMaxTimeoutSeconds = 86400;
inline constexpr uint32_t kMaxWorldSize = 1 << 20;

// What one source says; what it leaves open is empty.
struct Settings {
    std::optional<uint32_t> world;  // 0: auto
    std::optional<uint32_t> timeout_seconds;
    std::optional<bool> verbose;
    std::optional<bool> dry_run;

    bool operator==(const Settings&) const = default;
    bool any() const { return *this != Settings{}; }
};

// One option, as srun shows it and as the environment spells it.
struct OptionSpec {
    const char* name;      // "dp-world"
    const char* variable;  // "SLURM_DP_WORLD"
    const char* argument;  // "auto|N", or nullptr for a flag
    const char* usage;     // fits `srun --help`
};
const std::vector<OptionSpec>& option_specs();

// Sets one option from its text ("" or "1" for a flag). The failure is the line that the user sees.
Try<void> set_option(Settings& settings, std::string_view name, std::string_view value);

// Reads the SLURM_DP_* variables through `get`.
Try<Settings> settings_from_environment(const GetVariable& get);

// The variables that carry these settings to sruns inside a job: name and value.
std::vector<std::pair<std::string, std::string>> settings_to_environment(const Settings& settings);

// Layers: what `strong` says wins over `weak`.
Settings merge(const Settings& strong, const Settings& weak);

// What a step does about an asked world size. `insist` is true for what was given to this srun itself;
// inherited from the job it only applies to steps of that many tasks.
enum class WorldDecision { apply, leave_alone, refuse };
WorldDecision decide_world(uint32_t asked, uint32_t tasks, bool insist);

// The refusal that goes with WorldDecision::refuse.
std::string world_refusal(uint32_t asked, uint32_t tasks);

}  // namespace dp
