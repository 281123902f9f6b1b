// SPDX-License-Identifier: Apache-2.0
//
// The --dp-* options: one table of what there is, how a value is checked, and which of several sources wins.
// Pure; the plugin feeds it from srun's command line, the environment and plugstack.conf, dpctl from its own
// command line. What holds for a step goes as one text to its nodes, and as Settings to its daemons and
// tasks: a new option is a row of option_specs() with its field, and the place that uses it.
#pragma once

#include <chrono>
#include <string_view>

#include "base/failure.hpp"
#include "base/model_parallel.hpp"
#include "common/environment.hpp"
#include "common/nccl_debug.hpp"

namespace dp {

inline constexpr uint32_t kDefaultTimeoutSeconds = 300;
inline constexpr uint32_t kMaxTimeoutSeconds = 86400;
// A plan may be so much later.
inline constexpr std::chrono::seconds kLongestPreflight{90};
inline constexpr uint32_t kMaxWorldSize = 1 << 20;
inline constexpr uint16_t kLowestPort = 1024;
// On one node; what a step really owns is known there.
inline constexpr uint32_t kMaxTilesPerRank = 4096;
inline constexpr uint32_t kMaxRestarts = 100000;
inline constexpr uint32_t kMaxSlowPercent = 10000;
inline constexpr uint32_t kMaxNodes = 1 << 16;
// Between the samples of a record: a rank's costs some system calls.
inline constexpr std::chrono::milliseconds kShortestInterval{100}, kLongestInterval{60'000};

// What is on MASTER_PORT: nothing, so that rank 0 can bind it, or PyTorch's store, served by the broker.
enum class StoreKind { hold, torch };
// What the first death means for the other ranks; restart: all start again, in the same allocation.
enum class FailureAction { abort, report, restart };
// Whether nodes are examined before the ranks start (daemon/doctor).
enum class Preflight { off, quick, full };
// Where --dp-record writes: "off", or a directory with Slurm's patterns (common/slurm_patterns.hpp).
struct RecordDirectory {
    std::string pattern;
    bool operator==(const RecordDirectory&) const = default;
};
// Exit codes of a program, ascending.
using ExitCodes = std::vector<uint8_t>;
// Which devices a task sees: those of all the step's ranks on its node, in rank order, or its own alone.
enum class Visible { node, own };

// The settings of one source; those that it leaves open are empty.
struct Settings {
    std::optional<uint32_t> world;         // 0: auto
    std::optional<uint16_t> port;          // 0: auto
    std::optional<std::string> interface;  // a name, or a network as CIDR
    std::optional<StoreKind> store;
    std::optional<uint32_t> timeout_seconds;
    std::optional<FailureAction> on_failure;
    std::optional<uint32_t> restarts;              // at most
    std::optional<ExitCodes> final_exit;           // that no restart can help
    std::optional<uint32_t> grace_seconds;         // for survivors that keep their process; 0: none does
    std::optional<uint32_t> spares;                // nodes without ranks until another is lost
    std::optional<uint32_t> min_nodes;             // fewest with ranks; if empty, the world keeps its size
    std::optional<uint32_t> hang_timeout_seconds;  // 0: nobody looks
    std::optional<uint32_t> slow_percent;          // 0: nobody is compared
    std::optional<Preflight> preflight;
    std::optional<NcclDebug> nccl_debug;
    std::optional<RecordDirectory> record;
    std::optional<std::chrono::milliseconds> record_interval;  // between the samples of a record
    std::optional<uint32_t> tensor;
    std::optional<uint32_t> pipeline;
    std::optional<uint32_t> tiles;  // per rank; 0: auto. If empty, tiles are ignored
    std::optional<Visible> visible;
    std::optional<bool> verbose;
    std::optional<bool> dry_run;

    bool operator==(const Settings&) const = default;
    bool any() const { return *this != Settings{}; }

    // For complete settings (with_defaults).
    std::chrono::seconds timeout() const { return std::chrono::seconds(*timeout_seconds); }
    bool reports_failures() const { return on_failure == FailureAction::report; }
    bool restarts_ranks() const { return on_failure == FailureAction::restart && !*dry_run; }
    std::chrono::seconds hang_timeout() const {
        return std::chrono::seconds(hang_timeout_seconds.value_or(0));
    }
    std::chrono::seconds grace() const { return std::chrono::seconds(grace_seconds.value_or(0)); }
    bool wants_preflight() const { return preflight.value_or(Preflight::off) != Preflight::off; }
    std::chrono::seconds longest_preflight() const {
        return wants_preflight() ? kLongestPreflight : std::chrono::seconds(0);
    }
    bool wants_nccl_debug() const { return nccl_debug && nccl_debug->is_on(); }
    bool wants_record() const { return record && record->pattern != "off" && !*dry_run; }
    // Whether tasks speak to their node's daemon before they run their programs (keeper.hpp, told_environment.hpp).
    bool tasks_tell() const { return restarts_ranks() || wants_record(); }
    // Whether it may go on without a node.
    bool outlives_nodes() const { return restarts_ranks() && (*spares > 0 || min_nodes); }
    bool serves_torch() const { return store == StoreKind::torch; }
    bool wants_table() const { return *verbose || *dry_run; }
    ModelParallel sizes(uint32_t world_size) const {
        return ModelParallel::of_world(world_size, tensor.value_or(1), pipeline.value_or(1));
    }
};

struct OptionPlaces {
    bool plugstack = false;  // a default of the site's
    bool dpctl = false;      // dpctl launch: it makes sense on one machine
};

// One option, as srun shows it and as the environment spells it.
struct OptionSpec {
    const char* name;              // "dp-world"
    const char* variable;          // "SLURM_DP_WORLD"
    const char* argument;          // "auto|N", or nullptr for a flag
    const char* usage;             // fits `srun --help`
    const char* preset;            // where nobody says anything; nullptr: stays open
    OptionPlaces places;           // where it is taken beside srun, sbatch and salloc
    std::string complaint = {};    // what a bad value is not, and what to give instead
    uint32_t least = 0, most = 0;  // of a number
    // How its field is read from text and written, by the field's type (options.cpp).
    Try<void> (*read)(const OptionSpec&, Settings&, std::string_view value) = nullptr;
    std::optional<std::string> (*write)(const OptionSpec&, const Settings&) = nullptr;
    void (*merge)(Settings& out, const Settings& strong) = nullptr;

    // Checks a value and stores it; the failure says what to give instead.
    Try<void> set(Settings& settings, std::string_view value) const { return read(*this, settings, value); }
    // The value as text; nullopt if it is empty.
    std::optional<std::string> get(const Settings& settings) const { return write(*this, settings); }
};
const std::vector<OptionSpec>& option_specs();

// Sets one option from its text ("" or "1" for a flag). The failure is the line that the user sees.
Try<void> set_option(Settings& settings, std::string_view name, std::string_view value);

// Reads the SLURM_DP_* variables through `get`.
Try<Settings> settings_from_environment(const GetVariable& get);

// The variables that carry these settings to sruns inside a job: name and value.
std::vector<std::pair<std::string, std::string>> settings_to_environment(const Settings& settings);

// The same as one text, for a step's nodes and daemons: words of NAME=VALUE. Other words are left alone.
std::string write_settings(const Settings& settings);
Try<Settings> read_settings(std::string_view text);

// Merges two sources; `strong` wins.
Settings merge(const Settings& strong, const Settings& weak);

// Fills in the defaults.
Settings with_defaults(const Settings& settings);

// What a step with these numbers of tasks and nodes does about its options. `own` are those given to this srun: with
// any of them, the step wants a world, and is refused if it cannot have one. Inherited ones apply to steps that
// they fit, and leave others alone (`srun mkdir`).
struct StepVerdict {
    enum Decision { apply, leave_alone, refuse } decision = apply;
    std::string why;  // with refuse: the line for the user
};
StepVerdict judge_step(const Settings& settings, const Settings& own, uint32_t tasks, uint32_t nodes);

// The spare nodes of a step.
uint32_t nodes_in_reserve(const Settings& settings);
// The ranks of a step that judge_step accepts: its tasks, but for those of the spare nodes.
uint32_t world_size(const Settings& settings, uint32_t tasks, uint32_t nodes);

// The message about settings that contradict each other for any number of tasks.
std::optional<std::string> contradiction(const Settings& settings);

// The message about an option of `own` that does nothing without another one; `all` are what holds in the end.
std::optional<std::string> missing_option(const Settings& own, const Settings& all);

}  // namespace dp
