// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <type_traits>

#include "base/text.hpp"
#include "common/address.hpp"

namespace dp {
namespace {

template <auto Field>
using Value = typename std::remove_cvref_t<decltype(std::declval<Settings&>().*Field)>::value_type;

// 0 is written as auto if the option has that word.
bool is_auto(const OptionSpec& spec, std::string_view value) {
    return value == "auto" && spec.argument && std::string_view(spec.argument).starts_with("auto|");
}

Try<void> read_network(const OptionSpec& spec, Settings& s, std::string_view value) {
    constexpr size_t kLongestName = 15;  // IFNAMSIZ, without its terminator
    constexpr std::string_view kOfNames =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@-";
    if (value.find('/') != std::string_view::npos) {
        if (!parse_cidr(value)) return fail("not a network in CIDR notation" + spec.complaint);
    } else if (value.empty() || value.size() > kLongestName ||
               value.find_first_not_of(kOfNames) != std::string_view::npos) {
        return fail("not an interface's name" + spec.complaint);
    }
    s.interface = value;
    return {};
}

// "2", "0.25": to the millisecond.
std::optional<std::chrono::milliseconds> parse_seconds(std::string_view text) {
    constexpr size_t kDecimals = 3;
    const std::string_view whole = text.substr(0, text.find('.'));
    std::string decimals(text.substr(std::min(text.size(), whole.size() + 1)));
    if (decimals.size() > kDecimals || decimals.empty() != (whole.size() == text.size())) return std::nullopt;
    decimals.append(kDecimals - decimals.size(), '0');
    const auto seconds = parse_number<uint32_t>(whole), milliseconds = parse_number<uint32_t>(decimals);
    if (!seconds || !milliseconds) return std::nullopt;
    return std::chrono::milliseconds(int64_t{*seconds} * 1000 + *milliseconds);
}

std::string seconds_as_text(std::chrono::milliseconds time) {
    std::string decimals = std::to_string(1000 + time.count() % 1000).substr(1);
    decimals.erase(decimals.find_last_not_of('0') + 1);
    return std::to_string(time.count() / 1000) + (decimals.empty() ? "" : "." + decimals);
}

template <auto Field>
Try<void> read_field(const OptionSpec& spec, Settings& s, std::string_view value) {
    using Type = Value<Field>;
    auto& field = s.*Field;
    if constexpr (std::is_same_v<Type, std::string>) {
        return read_network(spec, s, value);
    } else if constexpr (std::is_same_v<Type, NcclDebug> || std::is_same_v<Type, RecordDirectory>) {
        constexpr size_t kLongest = 200;
        // Settings travel as words.
        const auto is_bad = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
        if (value.empty() || value.size() > kLongest || std::any_of(value.begin(), value.end(), is_bad))
            return fail(spec.complaint);
        // A shell replaces ~ at the beginning of a word only, and nobody does in a line with #SBATCH.
        if (value.starts_with('~') || value.find('$') != std::string_view::npos)
            return fail("~ and $ are not expanded here; give the whole path");
        field = Type{std::string(value)};
    } else if constexpr (std::is_same_v<Type, std::chrono::milliseconds>) {
        const auto time = parse_seconds(value);
        if (!time || *time < kShortestInterval || *time > kLongestInterval) return fail(spec.complaint);
        field = time;
    } else if constexpr (std::is_same_v<Type, ExitCodes>) {
        const auto codes = parse_ranges<uint32_t>(value, 255);
        if (!codes || codes->empty()) return fail(spec.complaint);
        const std::set<uint8_t> sorted(codes->begin(), codes->end());
        field.emplace(sorted.begin(), sorted.end());
    } else if constexpr (std::is_same_v<Type, bool>) {
        constexpr std::array<std::string_view, 5> kOn = {"", "1", "yes", "on", "true"};
        constexpr std::array<std::string_view, 4> kOff = {"0", "no", "off", "false"};
        const bool on = std::find(kOn.begin(), kOn.end(), value) != kOn.end();
        if (!on && std::find(kOff.begin(), kOff.end(), value) == kOff.end()) return fail(spec.complaint);
        field = on;
    } else if constexpr (std::is_enum_v<Type>) {
        // The words of the argument, in the order of the enumerators.
        const auto words = split(spec.argument, '|');
        const auto found = std::find(words.begin(), words.end(), value);
        if (found == words.end()) return fail(spec.complaint);
        field = static_cast<Type>(found - words.begin());
    } else {
        const bool automatic = is_auto(spec, value);
        const auto number = automatic ? Type{0} : parse_number<Type>(value);
        if (!number || (!automatic && (*number < spec.least || *number > spec.most)))
            return fail(spec.complaint);
        field = number;
    }
    return {};
}

template <auto Field>
std::optional<std::string> write_field(const OptionSpec& spec, const Settings& s) {
    const auto& field = s.*Field;
    if (!field) return std::nullopt;
    if constexpr (std::is_same_v<Value<Field>, std::string>) {
        return *field;
    } else if constexpr (std::is_same_v<Value<Field>, NcclDebug>) {
        return field->file;
    } else if constexpr (std::is_same_v<Value<Field>, RecordDirectory>) {
        return field->pattern;
    } else if constexpr (std::is_same_v<Value<Field>, std::chrono::milliseconds>) {
        return seconds_as_text(*field);
    } else if constexpr (std::is_same_v<Value<Field>, ExitCodes>) {
        std::vector<std::string> codes;
        for (const uint8_t code : *field) codes.push_back(std::to_string(code));
        return join(codes);
    } else if constexpr (std::is_enum_v<Value<Field>>) {
        return std::string(split(spec.argument, '|')[static_cast<size_t>(*field)]);
    } else {
        if (*field == 0 && is_auto(spec, "auto")) return "auto";
        return std::to_string(*field);
    }
}

template <auto Field>
OptionSpec option(const char* name, const char* variable, const char* argument, const char* usage,
                  const char* preset, OptionPlaces places, std::string complaint, uint32_t least = 0,
                  uint32_t most = 0) {
    if (most > 0) complaint += " from " + std::to_string(least) + " to " + std::to_string(most);
    return {name,
            variable,
            argument,
            usage,
            preset,
            places,
            std::move(complaint),
            least,
            most,
            read_field<Field>,
            write_field<Field>,
            [](Settings& out, const Settings& strong) {
                if (strong.*Field) out.*Field = strong.*Field;
            }};
}

}  // namespace

const std::vector<OptionSpec>& option_specs() {
    static const std::vector<OptionSpec> specs = {
        option<&Settings::world>(
            "dp-world", "SLURM_DP_WORLD", "auto|N",
            "start the step as one data-parallel world: every task a rank (auto), or insist on N tasks",
            "auto", {}, "not a number of ranks; give auto (every task of the step is a rank) or a number", 1,
            kMaxWorldSize),
        option<&Settings::port>("dp-port", "SLURM_DP_PORT", "auto|N",
                                "MASTER_PORT: a free one is found (auto), or insist on N", "auto",
                                {.dpctl = true}, "not a port; give auto (a free one is found) or a number",
                                kLowestPort, 65535),
        option<&Settings::interface>(
            "dp-interface", "SLURM_DP_INTERFACE", "NAME|CIDR",
            "the network of MASTER_ADDR, NCCL and Gloo, and of the rendezvous if host names resolve to it",
            nullptr, {.plugstack = true},
            "; give the name of a network interface that every node of the step has (ib0), or a network "
            "(10.1.0.0/16)"),
        option<&Settings::store>(
            "dp-store", "SLURM_DP_STORE", "hold|torch",
            "hold MASTER_PORT free for rank 0 (default), or serve PyTorch's store there", "hold",
            {.plugstack = true, .dpctl = true},
            "no such store; give hold (MASTER_PORT is held free for rank 0) or torch (slurm-dp serves "
            "PyTorch's store there)"),
        option<&Settings::timeout_seconds>(
            "dp-timeout", "SLURM_DP_TIMEOUT", "SECONDS", "how long ranks may take to arrive (default 300)",
            "300", {.plugstack = true, .dpctl = true}, "not a number of seconds; give a whole number", 1,
            kMaxTimeoutSeconds),
        option<&Settings::on_failure>(
            "dp-on-failure", "SLURM_DP_ON_FAILURE", "abort|report|restart",
            "when a rank dies: name it and end the step (default), only name it, or start all ranks again",
            "abort", {.plugstack = true, .dpctl = true},
            "no such action; give abort (the first dead rank ends the step), report (it is only named) or "
            "restart (all ranks start again)"),
        option<&Settings::hang_timeout_seconds>(
            "dp-hang-timeout", "SLURM_DP_HANG_TIMEOUT", "SECONDS",
            "no rank moves for so long: name who hangs, and where; then as on-failure says (default 0: off)",
            "0", {.plugstack = true, .dpctl = true},
            "not a number of seconds (0: no rank is watched); give a whole number", 0, kMaxTimeoutSeconds),
        option<&Settings::slow_percent>(
            "dp-slow", "SLURM_DP_SLOW", "PERCENT",
            "name a rank whose steps take PERCENT more time of its own than the median (default 20; 0: off)",
            "20", {.plugstack = true, .dpctl = true},
            "not a percentage (0: nobody is named); give a whole number", 0, kMaxSlowPercent),
        option<&Settings::preflight>(
            "dp-preflight", "SLURM_DP_PREFLIGHT", "off|quick|full",
            "examine the step's nodes before ranks start, or measure them, too (default off)", "off",
            {.plugstack = true, .dpctl = true},
            "no such examination; give quick (what a step needs, within a second), full (cores, memory and "
            "the links "
            "between nodes are measured, too, within a minute) or off"),
        option<&Settings::nccl_debug>(
            "dp-nccl-debug", "SLURM_DP_NCCL_DEBUG", "off|on|FILE",
            "each rank's NCCL writes what it does to a file; reports of deaths and hangs quote its last "
            "warning",
            "off", {.plugstack = true, .dpctl = true},
            "not a file's name; give on (nccl-%j.%s.%t.log in the working directory), off, or a name without "
            "blanks of at most 200 bytes (%j job, %s step, %t rank, %N node)"),
        option<&Settings::record>("dp-record", "SLURM_DP_RECORD", "off|DIR",
                                  "each node records what the step does in a file in DIR, for dpctl report "
                                  "and ledger (default off)",
                                  "off", {.plugstack = true, .dpctl = true},
                                  "not a directory's name; give off, or a name without blanks of at most 200 "
                                  "bytes (%j job, %s step, "
                                  "%N node)"),
        option<&Settings::record_interval>(
            "dp-record-interval", "SLURM_DP_RECORD_INTERVAL", "SECONDS",
            "with record: how often a node notes what its ranks do (default 1)", "1",
            {.plugstack = true, .dpctl = true},
            "not a number of seconds; give one from 0.1 to 60, as in 0.5"),
        option<&Settings::restarts>("dp-restarts", "SLURM_DP_RESTARTS", "N",
                                    "with on-failure=restart: how often at most (default 10)", "10",
                                    {.plugstack = true, .dpctl = true},
                                    "not a number of restarts; give a whole number", 0, kMaxRestarts),
        option<&Settings::final_exit>(
            "dp-final-exit", "SLURM_DP_FINAL_EXIT", "CODES",
            "with on-failure=restart: exit codes that end the step (default 0,2,126,127)", "0,2,126,127",
            {.plugstack = true, .dpctl = true},
            "not a list of exit codes; give numbers from 0 to 255, as in 2,64-78"),
        option<&Settings::grace_seconds>(
            "dp-grace", "SLURM_DP_GRACE", "SECONDS",
            "with on-failure=restart: how long survivors may take to rejoin (default 30)", "30",
            {.plugstack = true, .dpctl = true},
            "not a number of seconds (0: every rank is restarted); give a whole number", 0,
            kMaxTimeoutSeconds),
        option<&Settings::spares>("dp-spares", "SLURM_DP_SPARES", "N",
                                  "with on-failure=restart: nodes kept without ranks until one is lost", "0",
                                  {.plugstack = true}, "not a number of nodes; give a whole number", 0,
                                  kMaxNodes),
        option<&Settings::min_nodes>(
            "dp-min-nodes", "SLURM_DP_MIN_NODES", "N",
            "with on-failure=restart: with no spare left, go on with fewer nodes, down to N", nullptr,
            {.plugstack = true}, "not a number of nodes; give a whole number", 1, kMaxNodes),
        option<&Settings::tensor>("dp-tensor", "SLURM_DP_TENSOR", "N",
                                  "tensor-parallel size; the world divides by it", nullptr, {.dpctl = true},
                                  "not a number of ranks; give a whole number", 1, kMaxWorldSize),
        option<&Settings::pipeline>(
            "dp-pipeline", "SLURM_DP_PIPELINE", "N", "pipeline-parallel size; the world divides by it",
            nullptr, {.dpctl = true}, "not a number of ranks; give a whole number", 1, kMaxWorldSize),
        option<&Settings::tiles>(
            "dp-tiles", "SLURM_DP_TILES", "auto|N",
            "accelerator tiles a rank: N, or what the step owns on the node divided evenly (auto)", nullptr,
            {},
            "not a number of tiles; give auto (what the step owns on the node, divided evenly) or a number",
            1, kMaxTilesPerRank),
        option<&Settings::visible>(
            "dp-visible", "SLURM_DP_VISIBLE", "node|own",
            "with --dp-tiles: tasks see the devices of all ranks of the node (default), or their own", "node",
            {.plugstack = true},
            "no such view; give node (a task sees the devices of all the step's ranks on its node) or own "
            "(its own alone)"),
        option<&Settings::verbose>(
            "dp-verbose", "SLURM_DP_VERBOSE", nullptr, "print ranks, nodes, addresses and ports, then launch",
            "0", {.dpctl = true}, "takes no value; give the option alone (in a variable: 1 or 0)"),
        option<&Settings::dry_run>("dp-dry-run", "SLURM_DP_DRY_RUN", nullptr,
                                   "print ranks, nodes, addresses and ports, run nothing", "0", {},
                                   "takes no value; give the option alone (in a variable: 1 or 0)"),
    };
    return specs;
}

Try<void> set_option(Settings& settings, std::string_view name, std::string_view value) {
    for (const auto& spec : option_specs()) {
        if (name != spec.name) continue;
        auto set = spec.set(settings, value);
        if (set) return {};
        return fail("--" + std::string(name) + "=" + printable(value, 40) + ": " + set.error().message);
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
    for (const auto& spec : option_specs())
        if (auto value = spec.get(settings)) out.emplace_back(spec.variable, *value);
    return out;
}

std::string write_settings(const Settings& settings) {
    std::string text;
    for (const auto& [name, value] : settings_to_environment(settings))
        text.append(text.empty() ? "" : " ").append(name).append("=").append(value);
    return text;
}

Try<Settings> read_settings(std::string_view text) {
    std::map<std::string_view, std::string_view> values;
    for (std::string_view word : split(text, ' '))
        if (const size_t equals = word.find('='); equals != std::string_view::npos)
            values.emplace(word.substr(0, equals), word.substr(equals + 1));
    return settings_from_environment([&](const char* name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
}

Settings merge(const Settings& strong, const Settings& weak) {
    Settings out = weak;
    for (const auto& spec : option_specs()) spec.merge(out, strong);
    return out;
}

Settings with_defaults(const Settings& settings) {
    Settings defaults;
    for (const auto& spec : option_specs())
        if (spec.preset) (void)spec.set(defaults, spec.preset);
    return merge(settings, defaults);
}

std::optional<std::string> contradiction(const Settings& s) {
    const uint64_t replica = uint64_t{s.tensor.value_or(1)} * s.pipeline.value_or(1);
    const uint32_t world = s.world.value_or(0);
    if (world == 0 || world % replica == 0) return std::nullopt;
    return "a world of " + std::to_string(world) +
           " ranks (--dp-world) cannot be divided by --dp-tensor=" + std::to_string(s.tensor.value_or(1)) +
           " times --dp-pipeline=" + std::to_string(s.pipeline.value_or(1)) +
           "; give sizes whose product divides it";
}

std::optional<std::string> missing_option(const Settings& own, const Settings& all) {
    if (own.visible && !all.tiles)
        return "--dp-visible needs --dp-tiles: it says which of the node's devices a task sees; give "
               "--dp-tiles, too";
    if (own.record_interval && (!all.record || all.record->pattern == "off"))
        return "--dp-record-interval needs --dp-record=DIR: without it nothing is recorded; give both";
    if (all.on_failure == FailureAction::restart) return std::nullopt;
    const char* given = own.restarts                 ? "--dp-restarts"
                        : own.final_exit             ? "--dp-final-exit"
                        : own.grace_seconds          ? "--dp-grace"
                        : own.spares.value_or(0) > 0 ? "--dp-spares"
                        : own.min_nodes              ? "--dp-min-nodes"
                                                     : nullptr;
    if (!given) return std::nullopt;
    return std::string(given) + " needs --dp-on-failure=restart: without it no rank starts again; give both";
}

uint32_t nodes_in_reserve(const Settings& s) {
    return s.on_failure == FailureAction::restart ? s.spares.value_or(0) : 0;
}

uint32_t world_size(const Settings& s, uint32_t tasks, uint32_t nodes) {
    return tasks - nodes_in_reserve(s) * (tasks / nodes);
}

// Why the step's nodes cannot have these spares or this minimum; "" if they can.
static std::string unfit_nodes(const Settings& s, const Settings& own, uint32_t tasks, uint32_t nodes) {
    if (s.on_failure != FailureAction::restart) return "";
    const uint32_t spares = s.spares.value_or(0);
    const std::string option = "--dp-spares=" + std::to_string(spares) +
                               (own.spares ? "" : " (inherited: SLURM_DP_SPARES or plugstack.conf)");
    if (spares >= nodes)
        return option + ", but this step has " + plural(nodes, "node") +
               ": at least one must have ranks; give " + "-N " + std::to_string(spares + 1) +
               " or more, or fewer spares";
    if (spares > 0 && tasks % nodes != 0)
        return option + " needs the same number of tasks on each node, but this step has " +
               plural(tasks, "task") + " on " + std::to_string(nodes) + " nodes; give --ntasks-per-node";
    if (s.min_nodes.value_or(0) > nodes - spares)
        return "--dp-min-nodes=" + std::to_string(*s.min_nodes) +
               (own.min_nodes ? "" : " (inherited: SLURM_DP_MIN_NODES or plugstack.conf)") + ", but only " +
               plural(nodes - spares, "node") + " of this step " + (nodes - spares == 1 ? "has" : "have") +
               " ranks; give at most " + std::to_string(nodes - spares) + ", or more nodes";
    return "";
}

StepVerdict judge_step(const Settings& s, const Settings& own, uint32_t step_tasks, uint32_t nodes) {
    if (const std::string why = unfit_nodes(s, own, step_tasks, nodes); !why.empty())
        return own.any() ? StepVerdict{StepVerdict::refuse, why} : StepVerdict{StepVerdict::leave_alone, ""};
    const uint32_t tasks = world_size(s, step_tasks, nodes);
    const uint32_t world = s.world.value_or(0);
    const uint32_t tensor = s.tensor.value_or(1);
    const uint32_t pipeline = s.pipeline.value_or(1);
    const uint64_t replica = uint64_t{tensor} * pipeline;
    const bool other_world = world != 0 && world != tasks;
    if (!other_world && tasks % replica == 0) return {};
    if (!own.any()) return {StepVerdict::leave_alone, ""};
    auto inherited = [](bool is, const char* variable) {
        return is ? std::string(" (inherited: ") + variable + ")" : std::string();
    };
    if (other_world)
        return {StepVerdict::refuse,
                "--dp-world=" + std::to_string(world) + inherited(!own.world, "SLURM_DP_WORLD") +
                    ", but this step has " +
                    (tasks < step_tasks ? plural(tasks, "rank") + ", not counting its spare nodes; give " +
                                              "--dp-world=auto, or other numbers of tasks and nodes"
                                        : plural(tasks, "task") + "; give -n " + std::to_string(world) +
                                              " (or --dp-world=auto for " + std::to_string(tasks) + ")")};
    return {StepVerdict::refuse,
            "--dp-tensor=" + std::to_string(tensor) + inherited(s.tensor && !own.tensor, "SLURM_DP_TENSOR") +
                " and --dp-pipeline=" + std::to_string(pipeline) +
                inherited(s.pipeline && !own.pipeline, "SLURM_DP_PIPELINE") + " make groups of " +
                std::to_string(replica) + " ranks, which do not divide this step's " +
                (tasks < step_tasks
                     ? plural(tasks, "rank") + " (not counting its spare nodes); give other numbers of "
                                               "tasks and nodes"
                     : plural(tasks, "task") + "; give -n a multiple of " + std::to_string(replica)) +
                ", or smaller sizes"};
}

}  // namespace dp
