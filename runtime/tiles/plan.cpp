// SPDX-License-Identifier: Apache-2.0
#include "tiles/plan.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/task_environment.hpp"

namespace dp {
namespace {

// The units of a step on this node and the step's names for them.
struct Owned {
    std::vector<uint32_t> units;
    UnitNames names;
    bool by_task = false;  // they are this task's alone
};

Tiles tiles_of(const std::vector<uint32_t>& units, uint32_t per_unit) {
    Tiles tiles;
    for (uint32_t unit : units)
        for (uint32_t i = 0; i < per_unit; ++i) tiles.push_back(unit * per_unit + i);
    return tiles;
}

UnitNames pair_names(const std::vector<uint32_t>& units, const std::string& names) {
    const auto words = split(names, ',');
    UnitNames out;
    if (words.size() == units.size())
        for (size_t i = 0; i < units.size(); ++i) out.emplace_back(units[i], words[i]);
    return out;
}

// The units whose devices the task may open, as far as their files are known.
struct Access {
    std::vector<uint32_t> open;    // units
    std::vector<uint32_t> closed;  // by the device cgroup
};
Access look_at(const TileFacts& facts, const std::vector<uint32_t>& units) {
    const TileInventory& inventory = *facts.inventory;
    Access access;
    for (uint32_t unit : units) {
        bool closed = false;
        for (uint32_t device : inventory.devices_of(tiles_of({unit}, inventory.layout.tiles_per_unit))) {
            const std::string& file = inventory.devices[device].file;
            closed |= !file.empty() && facts.open_error(file) == EPERM;
        }
        (closed ? access.closed : access.open).push_back(unit);
    }
    return access;
}

// The units that Slurm gave, checked against the node's inventory.
Try<std::vector<uint32_t>> units_of(const std::vector<GresUnits>& given, const TileLayout& layout) {
    auto tiles = DP_TRY(owned_tiles(given, layout));
    std::vector<uint32_t> units;
    for (size_t i = 0; i < tiles.size(); i += layout.tiles_per_unit)
        units.push_back(tiles[i] / layout.tiles_per_unit);
    return units;
}

constexpr std::string_view kNoBinding = "none";

// How Slurm binds each task to GPUs: "per_task:1", kNoBinding if the user wants none, "" if nobody says.
std::string_view binding_of_gpus(const TileFacts& facts) {
    constexpr std::string_view kGres = "gres/";  // since 23.11
    constexpr std::string_view kGpu = "gpu:";
    std::string_view rest = facts.gpu_binding;
    while (!rest.empty()) {
        std::string_view part = rest.substr(0, rest.find_first_of("+;"));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        if (part.starts_with(kGres)) part.remove_prefix(kGres.size());
        if (!part.starts_with(kGpu)) continue;
        part.remove_prefix(kGpu.size());
        // It may be preceded by Slurm's verbosity.
        for (std::string_view word : {"verbose,", "v,"})
            if (part.starts_with(word)) part.remove_prefix(word.size());
        return part;
    }
    return {};
}

// How many units Slurm gives each task if no two share any as long as they last: then, it binds a task to the
// step's first. `seen`: this task's. nullopt: nobody can be sure.
std::optional<uint64_t> units_of_each(std::string_view binding, uint64_t seen) {
    constexpr std::string_view kPerTask = "per_task:";
    if (binding.empty()) return seen;
    if (binding == "single:1") return 1;
    if (!binding.starts_with(kPerTask)) return std::nullopt;
    return parse_number<uint64_t>(binding.substr(kPerTask.size()));
}

bool gives_each_its_own(std::string_view binding, uint64_t seen, size_t tasks, size_t units_of_step) {
    const auto each = units_of_each(binding, seen);
    return each && std::max(*each, seen) <= units_of_step / std::max<size_t>(1, tasks);
}

// If Slurm has bound this task to some of the step's units: in a device cgroup the task finds only these,
// counted from 0; otherwise Slurm names them by their number on the node.
Try<Owned> owned_by_task(const TileFacts& facts, const std::vector<uint32_t>& of_step) {
    Owned owned{{}, {}, true};
    const size_t count = split(facts.task_names, ',').size();
    const std::string_view binding = binding_of_gpus(facts);
    if (!gives_each_its_own(binding, count, facts.ranks.size(), of_step.size()))
        return fail("Slurm binds the tasks to GPUs itself" +
                    (binding.empty() ? "" : " (" + printable(binding, 60) + ")") + ", so that several of " +
                    plural(facts.ranks.size(), "task") + " may have the same one of " +
                    plural(of_step.size(), "GPU") +
                    " on this node; leave out --gpu-bind and --ntasks-per-gpu, or give --gpu-bind=none: then "
                    "--dp-tiles gives each rank its own");
    const Access access = look_at(facts, of_step);
    if (count == of_step.size()) {
        owned.units = of_step;
    } else if (!access.closed.empty() && access.open.size() == count) {
        owned.units = access.open;
    } else {
        const std::string gres =
            facts.inventory->layout.gres + ":" + std::to_string(count) + "(IDX:" + facts.task_names + ")";
        auto units = parse_gres_detail(gres).and_then(
            [&](const auto& named) { return units_of(named, facts.inventory->layout); });
        if (units && std::includes(of_step.begin(), of_step.end(), units->begin(), units->end()))
            owned.units = std::move(*units);
        const bool files_known =
            std::none_of(facts.inventory->devices.begin(), facts.inventory->devices.end(),
                         [](const TileDevice& d) { return d.file.empty(); });
        if (owned.units.empty() || (!files_known && of_step.size() != count))
            return fail("Slurm has bound rank " + std::to_string(facts.ranks[facts.local_rank]) + " to the " +
                        facts.inventory->layout.gres + " that it calls \"" + printable(facts.task_names, 60) +
                        "\", and nothing tells which of the step's " + compress_ranks(of_step) +
                        " that is; leave out --gpus-per-task and --gpu-bind (--dp-tiles gives each rank its "
                        "own), or have files= put into tiles.conf (" +
                        facts.inventory->source + ")");
    }
    owned.names = pair_names(owned.units, facts.task_names);
    return owned;
}

Try<Owned> owned_units(const TileFacts& facts) {
    const TileLayout& layout = facts.inventory->layout;
    const bool gpus = layout.gres == "gpu";
    const bool told = gpus && !facts.step_units.empty();
    std::vector<GresUnits> given = facts.given;
    if (told) {
        const size_t count = split(facts.step_units, ',').size();
        given = DP_TRY(parse_gres_detail("gpu:" + std::to_string(count) + "(IDX:" + facts.step_units + ")"));
    }
    auto units = DP_TRY(units_of(given, layout));
    if (units.empty())
        return fail("the job owns no " + layout.gres + " on this node for --dp-tiles to share out (" +
                    facts.inventory->source + "); ask Slurm for some, for example --gres=" + layout.gres +
                    ":1");
    if (is_bound_by_slurm(facts)) return owned_by_task(facts, units);
    Owned owned{units, pair_names(units, facts.step_names), false};
    if (!gpus) owned.names.clear();
    if (!told && facts.step_count == 0u)
        return fail("this step was given none of its job's " + std::to_string(units.size()) + " " +
                    layout.gres +
                    " on this node: what a step asks for itself (--gres, --gpus and similar options) "
                    "replaces all that its job has; ask for these, too, as with --gres=" +
                    layout.gres + ":" + std::to_string(units.size()));
    if (!told && facts.step_count && *facts.step_count < units.size())
        return fail("this step was given " + std::to_string(*facts.step_count) + " of its job's " +
                    std::to_string(units.size()) + " " + layout.gres +
                    " on this node, and Slurm does not tell which; give the step all of them (leave out its "
                    "--gres; steps one after the other), or start each step as a job of its own");
    return owned;
}

// Each rank's first tile, then each rank's second, ...: number LOCAL_RANK is one of the rank's own.
Tiles in_rank_order(const std::vector<Tiles>& shares) {
    Tiles order;
    if (!shares.empty()) order.reserve(shares.size() * shares.front().size());
    for (size_t place = 0; !shares.empty() && place < shares.front().size(); ++place)
        for (const Tiles& share : shares) order.push_back(share[place]);
    return order;
}

// The devices with a known file, each once.
std::vector<NodeShares::Device> devices_to_open(const TileFacts& facts, const std::vector<Tiles>& shares,
                                                bool by_task) {
    std::vector<NodeShares::Device> devices;
    for (size_t i = 0; i < shares.size(); ++i)
        for (uint32_t device : facts.inventory->devices_of(shares[i])) {
            const bool is_there =
                std::any_of(devices.begin(), devices.end(),
                            [&](const NodeShares::Device& other) { return other.number == device; });
            if (!is_there && !facts.inventory->devices[device].file.empty())
                devices.push_back({device, facts.ranks[by_task ? facts.local_rank : i]});
        }
    return devices;
}

Try<void> require_access(const TileFacts& facts, const std::vector<NodeShares::Device>& devices) {
    for (const auto& [number, rank] : devices) {
        const std::string& file = facts.inventory->devices[number].file;
        const int error = facts.open_error(file);
        if (error == 0) continue;
        return fail("rank " + std::to_string(rank) + " may not open " + file + ", its device " +
                    std::to_string(number) + ": " + std::strerror(error) + "; " +
                    (error == EPERM
                         ? "Slurm's device cgroup does not allow it: gres.conf and tiles.conf disagree"
                     : error == ENOENT ? "correct files= in tiles.conf"
                                       : "give the job's users access to it") +
                    " (" + facts.inventory->source + ")");
    }
    return {};
}

std::vector<TaskVariable> variables_of(const TileView& view) {
    const TileInventory& inventory = view.inventory;
    VendorVariables vendors = inventory.vendor->variables(view);
    std::string list;
    for (uint32_t tile : view.own) list.append(list.empty() ? "" : ",").append(std::to_string(tile));
    std::vector<TaskVariable> out;
    out.reserve(kNamesOfTiles.size() + vendors.variables.size());
    const auto add = [&](const char* name, std::string value) {
        out.push_back({name, std::move(value), TaskVariable::Whose::ours});
    };
    add("DP_TILE_MASK", tile_mask(view.own));
    add("DP_TILE_LIST", std::move(list));
    add("DP_TILE_COUNT", std::to_string(view.own.size()));
    add("DP_TILES_PER_DEVICE", std::to_string(inventory.layout.tiles_per_device));
    add("DP_TILE_DEVICE", std::to_string(vendors.device));
    if (const auto devices = inventory.devices_of(view.own); !devices.empty())
        if (const auto numa = inventory.devices[devices.front()].numa)
            add("DP_TILE_NUMA", std::to_string(*numa));
    std::move(vendors.variables.begin(), vendors.variables.end(), std::back_inserter(out));
    return out;
}

}  // namespace

bool is_bound_by_slurm(const TileFacts& facts) {
    if (facts.inventory->layout.gres != "gpu") return false;
    const std::string_view binding = binding_of_gpus(facts);
    // Then Slurm removes the names from the task, which may open what the step may.
    if (binding == kNoBinding) return false;
    return !binding.empty() || facts.task_names != facts.step_names;
}

Try<NodeShares> share_node(const TileFacts& facts) {
    const TileLayout& layout = facts.inventory->layout;
    auto owned = DP_TRY(owned_units(facts));
    const Tiles tiles = tiles_of(owned.units, layout.tiles_per_unit);
    if (owned.by_task && facts.per_rank > tiles.size())
        return fail("--dp-tiles=" + std::to_string(facts.per_rank) + " asks for " +
                    plural(facts.per_rank, "tile") + " a rank, and Slurm has bound rank " +
                    std::to_string(facts.ranks[facts.local_rank]) + " to " + plural(tiles.size(), "tile") +
                    "; have it bind each to more (--gpus-per-task), or leave that to --dp-tiles alone");
    auto shares =
        DP_TRY(share_tiles(tiles, layout.tiles_per_device,
                           owned.by_task ? 1 : static_cast<uint32_t>(facts.ranks.size()), facts.per_rank));
    NodeShares node;
    node.to_open = devices_to_open(facts, shares, owned.by_task);
    if (!owned.by_task && !facts.own_only) {
        node.visible = in_rank_order(shares);
        for (const Tiles& share : shares) node.firsts.push_back(share.front());
    }
    node.shares = std::move(shares);
    node.names = std::move(owned.names);
    node.by_task = owned.by_task;
    return node;
}

Try<TilePlan> plan_rank(const TileFacts& facts, const NodeShares& node) {
    DP_TRY(require_access(facts, node.to_open));
    const Tiles& own = node.shares[node.by_task ? 0 : facts.local_rank];
    const Tiles& visible = node.visible.empty() ? own : node.visible;
    return TilePlan{own, node.by_task,
                    variables_of({*facts.inventory, own, visible, node.firsts, node.names, facts.get})};
}

Try<TilePlan> plan_tiles(const TileFacts& facts) {
    return share_node(facts).and_then([&](const NodeShares& node) { return plan_rank(facts, node); });
}

std::vector<uint32_t> cpus_near(const TileInventory& inventory, const Tiles& tiles,
                                const std::function<std::vector<uint32_t>(uint32_t)>& cpus_of_numa) {
    std::vector<uint32_t> near;
    for (uint32_t device : inventory.devices_of(tiles)) {
        const TileDevice& d = inventory.devices[device];
        const std::vector<uint32_t> cpus = !d.cpus.empty() || !d.numa ? d.cpus : cpus_of_numa(*d.numa);
        if (cpus.empty()) return {};
        near.insert(near.end(), cpus.begin(), cpus.end());
    }
    std::sort(near.begin(), near.end());
    near.erase(std::unique(near.begin(), near.end()), near.end());
    return near;
}

}  // namespace dp
