// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include "base/text.hpp"
#include "common/cidr.hpp"

namespace dp {
namespace {

// What is wrong with a value; set_option adds option and value.
tl::unexpected<Failure> wrong(std::string what_and_remedy) {
    return fail(std::move(what_and_remedy));
}

Try<bool> read_flag(std::string_view value) {
    if (value.empty() || value == "1" || value == "yes" || value == "on" || value == "true") return true;
    if (value == "0" || value == "no" || value == "off" || value == "false") return false;
    return wrong("takes no value; give the option alone (in a variable: 1 or 0)");
}

std::optional<std::string> flag_text(const std::optional<bool>& flag) {
    if (!flag) return std::nullopt;
    return *flag ? "1" : "0";
}

template <typename Number>
std::optional<std::string> number_text(const std::optional<Number>& number) {
    if (!number) return std::nullopt;
    return std::to_string(*number);
}

// As number_text, where 0 is spelled auto.
template <typename Number>
std::optional<std::string> auto_text(const std::optional<Number>& number) {
    if (number && *number == 0) return "auto";
    return number_text(number);
}

Try<uint32_t> read_number(std::string_view value, uint32_t first, uint32_t last, const char* what) {
    auto number = parse_number<uint32_t>(value);
    if (number && *number >= first && *number <= last) return *number;
    return wrong(std::string("not ") + what + "; give a whole number from " + std::to_string(first) + " to " +
                 std::to_string(last));
}

Try<void> set_world(Settings& s, std::string_view value) {
    if (value == "auto") {
        s.world = 0;
        return {};
    }
    auto ranks = parse_number<uint32_t>(value);
    if (!ranks || *ranks == 0 || *ranks > kMaxWorldSize)
        return wrong(
            "not a number of ranks; give auto (every task of the step is a rank) or a number from 1 to " +
            std::to_string(kMaxWorldSize));
    s.world = *ranks;
    return {};
}

Try<void> set_port(Settings& s, std::string_view value) {
    if (value == "auto") {
        s.port = 0;
        return {};
    }
    auto port = parse_number<uint16_t>(value);
    if (!port || *port < kLowestPort)
        return wrong("not a port; give auto (a free one is found) or a number from " +
                     std::to_string(kLowestPort) + " to 65535");
    s.port = *port;
    return {};
}

Try<void> set_interface(Settings& s, std::string_view value) {
    constexpr size_t kLongestName = 15;  // IFNAMSIZ, without its terminator
    constexpr const char* kRemedy =
        "; give the name of a network interface that every node of the step has (ib0), or a network "
        "(10.1.0.0/16)";
    if (value.find('/') != std::string_view::npos) {
        if (!parse_cidr(value)) return wrong(std::string("not a network in CIDR notation") + kRemedy);
    } else if (value.empty() || value.size() > kLongestName ||
               value.find_first_not_of(
                   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@-") !=
                   std::string_view::npos) {
        return wrong(std::string("not an interface's name") + kRemedy);
    }
    s.interface = value;
    return {};
}

Try<void> set_store(Settings& s, std::string_view value) {
    if (value == "hold")
        s.store = StoreKind::hold;
    else if (value == "torch")
        s.store = StoreKind::torch;
    else
        return wrong(
            "no such store; give hold (MASTER_PORT is held free for rank 0) or torch (slurm-dp serves "
            "PyTorch's store there)");
    return {};
}

Try<void> set_timeout(Settings& s, std::string_view value) {
    auto seconds = read_number(value, 1, kMaxTimeoutSeconds, "a number of seconds");
    if (!seconds) return tl::make_unexpected(seconds.error());
    s.timeout_seconds = *seconds;
    return {};
}

Try<void> set_on_failure(Settings& s, std::string_view value) {
    if (value == "abort")
        s.on_failure = FailureAction::abort;
    else if (value == "report")
        s.on_failure = FailureAction::report;
    else
        return wrong(
            "no such action; give abort (the first dead rank ends the step) or report (it is only named)");
    return {};
}

Try<void> set_size(std::optional<uint32_t>& field, std::string_view value) {
    auto size = read_number(value, 1, kMaxWorldSize, "a number of ranks");
    if (!size) return tl::make_unexpected(size.error());
    field = *size;
    return {};
}

Try<void> set_tiles(Settings& s, std::string_view value) {
    if (value == "auto") {
        s.tiles = 0;
        return {};
    }
    const auto tiles = parse_number<uint32_t>(value);
    if (!tiles || *tiles == 0 || *tiles > kMaxTilesPerRank)
        return wrong(
            "not a number of tiles; give auto (what the step owns on the node, divided evenly) or a number "
            "from 1 to " +
            std::to_string(kMaxTilesPerRank));
    s.tiles = *tiles;
    return {};
}

Try<void> set_visible(Settings& s, std::string_view value) {
    if (value == "node")
        s.visible = Visible::node;
    else if (value == "own")
        s.visible = Visible::own;
    else
        return wrong(
            "no such view; give node (a task sees the devices of all the step's ranks on its node) or own "
            "(its own alone)");
    return {};
}

Try<void> set_flag(std::optional<bool>& field, std::string_view value) {
    auto on = read_flag(value);
    if (!on) return tl::make_unexpected(on.error());
    field = *on;
    return {};
}

std::string shown(uint32_t number) {
    return std::to_string(number);
}

}  // namespace

const std::vector<OptionSpec>& option_specs() {
    static const std::vector<OptionSpec> specs = {
        {"dp-world", "SLURM_DP_WORLD", "auto|N",
         "start the step as one data-parallel world: every task a rank (auto), or insist on N tasks", false,
         set_world, [](const Settings& s) { return auto_text(s.world); }},
        {"dp-port", "SLURM_DP_PORT", "auto|N", "MASTER_PORT: a free one is found (auto), or insist on N",
         true, set_port, [](const Settings& s) { return auto_text(s.port); }},
        {"dp-interface", "SLURM_DP_INTERFACE", "NAME|CIDR",
         "the network of MASTER_ADDR, NCCL and Gloo, and of the rendezvous where names lead there", false,
         set_interface, [](const Settings& s) { return s.interface; }},
        {"dp-store", "SLURM_DP_STORE", "hold|torch",
         "hold MASTER_PORT free for rank 0 (default), or serve PyTorch's store there", true, set_store,
         [](const Settings& s) -> std::optional<std::string> {
             if (!s.store) return std::nullopt;
             return *s.store == StoreKind::torch ? "torch" : "hold";
         }},
        {"dp-timeout", "SLURM_DP_TIMEOUT", "SECONDS", "how long ranks may take to arrive (default 300)", true,
         set_timeout, [](const Settings& s) { return number_text(s.timeout_seconds); }},
        {"dp-on-failure", "SLURM_DP_ON_FAILURE", "abort|report",
         "when a rank dies: name it and end the step (default), or only name it", true, set_on_failure,
         [](const Settings& s) -> std::optional<std::string> {
             if (!s.on_failure) return std::nullopt;
             return *s.on_failure == FailureAction::report ? "report" : "abort";
         }},
        {"dp-tensor", "SLURM_DP_TENSOR", "N", "tensor-parallel size; the world divides by it", true,
         [](Settings& s, std::string_view value) { return set_size(s.tensor, value); },
         [](const Settings& s) { return number_text(s.tensor); }},
        {"dp-pipeline", "SLURM_DP_PIPELINE", "N", "pipeline-parallel size; the world divides by it", true,
         [](Settings& s, std::string_view value) { return set_size(s.pipeline, value); },
         [](const Settings& s) { return number_text(s.pipeline); }},
        {"dp-tiles", "SLURM_DP_TILES", "auto|N",
         "accelerator tiles a rank: N, or what the step owns on the node divided evenly (auto)", false,
         set_tiles, [](const Settings& s) { return auto_text(s.tiles); }},
        {"dp-visible", "SLURM_DP_VISIBLE", "node|own",
         "with --dp-tiles: tasks see the devices of all ranks of the node (default), or their own", false,
         set_visible,
         [](const Settings& s) -> std::optional<std::string> {
             if (!s.visible) return std::nullopt;
             return *s.visible == Visible::own ? "own" : "node";
         }},
        {"dp-verbose", "SLURM_DP_VERBOSE", nullptr, "print ranks, nodes, addresses and ports, then launch",
         true, [](Settings& s, std::string_view value) { return set_flag(s.verbose, value); },
         [](const Settings& s) { return flag_text(s.verbose); }},
        {"dp-dry-run", "SLURM_DP_DRY_RUN", nullptr, "print ranks, nodes, addresses and ports, run nothing",
         false, [](Settings& s, std::string_view value) { return set_flag(s.dry_run, value); },
         [](const Settings& s) { return flag_text(s.dry_run); }},
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

Settings merge(const Settings& strong, const Settings& weak) {
    Settings out = weak;
    for (const auto& spec : option_specs())
        if (auto value = spec.get(strong)) (void)spec.set(out, *value);
    return out;
}

std::optional<std::string> contradiction(const Settings& s) {
    const uint64_t replica = uint64_t{s.tensor.value_or(1)} * s.pipeline.value_or(1);
    const uint32_t world = s.world.value_or(0);
    if (world == 0 || world % replica == 0) return std::nullopt;
    return "a world of " + shown(world) +
           " ranks (--dp-world) cannot be divided by --dp-tensor=" + shown(s.tensor.value_or(1)) +
           " times --dp-pipeline=" + shown(s.pipeline.value_or(1)) + "; give sizes whose product divides it";
}

Verdict judge_step(const Settings& s, const Settings& own, uint32_t tasks) {
    const uint32_t world = s.world.value_or(0);
    const uint32_t tensor = s.tensor.value_or(1);
    const uint32_t pipeline = s.pipeline.value_or(1);
    const uint64_t replica = uint64_t{tensor} * pipeline;
    const bool other_world = world != 0 && world != tasks;
    if (!other_world && tasks % replica == 0) return {};
    if (!own.any()) return {Verdict::leave_alone, ""};
    auto inherited = [](bool is, const char* variable) {
        return is ? std::string(" (inherited: ") + variable + ")" : std::string();
    };
    if (other_world)
        return {Verdict::refuse, "--dp-world=" + shown(world) + inherited(!own.world, "SLURM_DP_WORLD") +
                                     ", but this step has " + plural(tasks, "task") + "; give -n " +
                                     shown(world) + " (or --dp-world=auto for " + shown(tasks) + ")"};
    return {Verdict::refuse,
            "--dp-tensor=" + shown(tensor) + inherited(s.tensor && !own.tensor, "SLURM_DP_TENSOR") +
                " and --dp-pipeline=" + shown(pipeline) +
                inherited(s.pipeline && !own.pipeline, "SLURM_DP_PIPELINE") + " make groups of " +
                std::to_string(replica) + " ranks, which do not divide this step's " + plural(tasks, "task") +
                "; give -n a multiple of " + std::to_string(replica) + ", or smaller sizes"};
}

}  // namespace dp
