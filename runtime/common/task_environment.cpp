// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

#include "common/text.hpp"

namespace dp {
namespace {

constexpr const char* kInjected = "DP_INJECTED";
// What a blank has room for at least: of tiles the tasks in between may have longer lists than the first and
// the last.
constexpr size_t kBlank = 16;
constexpr size_t kBlankOfTiles = 64;

std::string text(uint32_t number) {
    return std::to_string(number);
}

// "10.0.0.1:29000", "[fd00::1]:29000".
std::string endpoint(const std::string& address, uint16_t port) {
    const bool v6 = address.find(':') != std::string::npos;
    return (v6 ? "[" + address + "]" : address) + ":" + text(port);
}

// What is written without tiles, and the length of DP_INJECTED.
constexpr size_t kMostChanges = 64;
constexpr size_t kMostInjected = 1200;

class Writer {
 public:
    explicit Writer(const GetVariable& get) : get_(get) {
        out_.changes.reserve(kMostChanges);
        injected_.reserve(kMostInjected);
        const std::string before = get(kInjected).value_or("");
        for (std::string_view word : split(before, ' '))
            if (size_t equals = word.find('='); equals != std::string_view::npos)
                outer_.emplace(word.substr(0, equals), word.substr(equals + 1));
    }

    // What stands in the environment because the user wanted it; empty counts as missing, as in PyTorch.
    std::optional<std::string> of_user(const char* name) const {
        auto value = get_(name);
        if (!value || value->empty()) return std::nullopt;
        auto outer = outer_.find(name);
        if (outer != outer_.end() && outer->second == *value) return std::nullopt;
        return value;
    }

    // A name of ours alone (DP_...).
    void set(const char* name, std::string value) { out_.changes.push_back({name, std::move(value)}); }

    // A name that others read too, whatever stood there.
    void inject(const char* name, const std::string& value) {
        set(name, value);
        injected_.append(injected_.empty() ? "" : " ").append(name).append("=").append(value);
    }

    // The same, but what the user set wins. Yields what the task will see.
    std::string offer(const char* name, const std::string& value) {
        if (auto kept = of_user(name)) return *kept;
        inject(name, value);
        return value;
    }

    // As offer; where the user's value contradicts the plan, there will be one warning.
    std::string offer_world(const char* name, const std::string& value) {
        std::string seen = offer(name, value);
        if (seen != value)
            contradictions_ += (contradictions_.empty() ? "" : ", ") + std::string(name) + "=" +
                               printable(seen, 80) + " (this step's is " + value + ")";
        return seen;
    }

    // A task's own, which no job-wide value can be right for.
    void own(const char* name, const std::string& value, bool warn) {
        if (warn && of_user(name))
            same_for_all_ +=
                (same_for_all_.empty() ? "" : ", ") + std::string(name) + "=" + printable(*get_(name), 20);
        inject(name, value);
    }
    void own(const char* name, uint32_t value, bool warn) { own(name, text(value), warn); }

    void remove(const char* name) { out_.changes.push_back({name, std::nullopt}); }

    // An outer step's variable that this one does not set would speak of the wrong step.
    TaskEnvironment finish() {
        for (const auto& outer : outer_) {
            const bool set_again =
                std::any_of(out_.changes.begin(), out_.changes.end(),
                            [&](const EnvironmentChange& c) { return c.name == outer.first; });
            if (!set_again && get_(outer.first.c_str()) == outer.second) remove(outer.first.c_str());
        }
        if (!contradictions_.empty())
            out_.warnings.push_back(
                contradictions_ +
                ": set before and kept; unset what you did not mean, and the step's own is used");
        if (!same_for_all_.empty())
            out_.warnings.push_back(
                same_for_all_ +
                " came from the job's environment, the same for every task; each task gets "
                "its own instead");
        set(kInjected, injected_);
        return std::move(out_);
    }

 private:
    const GetVariable& get_;
    std::map<std::string, std::string, std::less<>> outer_;
    TaskEnvironment out_;
    std::string injected_;
    std::string contradictions_;
    std::string same_for_all_;
};

// env:// of PyTorch, and with it Megatron-LM, DeepSpeed, Accelerate, Composer.
struct Master {
    std::string address;
    std::string port;
};
Master write_world(Writer& w, const TaskFacts& facts, const NodePlan& plan) {
    Master seen;
    seen.address = w.offer_world("MASTER_ADDR", plan.master_addr);
    seen.port = w.offer_world("MASTER_PORT", text(plan.master_port));
    w.offer_world("WORLD_SIZE", text(facts.world_size));
    const bool warn = facts.world_size > 1;
    w.own("RANK", facts.rank, warn);
    w.own("LOCAL_RANK", facts.local_rank, warn);
    w.own("LOCAL_WORLD_SIZE", facts.local_world_size, warn);
    w.own("NODE_RANK", facts.node_rank, warn);
    w.own("GROUP_RANK", facts.node_rank, warn);
    w.own("GROUP_WORLD_SIZE", facts.nodes, warn);
    return seen;
}

// The names of write_world. A user's own stand in the environment when the step begins; what came after that
// is another plugin's, as pyxis brings it along from a container's image and hooks: nobody's wish, and
// guessed.
constexpr std::array<std::string_view, 9> kOfWorld = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE",
                                                      "RANK",        "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                                      "NODE_RANK",   "GROUP_RANK",  "GROUP_WORLD_SIZE"};

bool is_of_world(std::string_view name) {
    return std::find(kOfWorld.begin(), kOfWorld.end(), name) != kOfWorld.end();
}

// What torchrun sets for its children, and (PET_) what it reads itself where the tasks are launchers, one a
// node. torch/distributed/run.py, torch/distributed/elastic/agent/server/local_elastic_agent.py.
void write_torchrun(Writer& w, const TaskFacts& facts, const NodePlan& plan, const Master& master) {
    w.own("ROLE_RANK", facts.rank, false);
    w.own("ROLE_WORLD_SIZE", facts.world_size, false);
    w.offer("ROLE_NAME", "default");
    w.offer("TORCHELASTIC_RUN_ID", facts.run);
    w.inject("TORCHELASTIC_RESTART_COUNT", text(facts.generation));
    w.offer("TORCHELASTIC_MAX_RESTARTS", text(facts.generation));
    // Where the user named another master, nobody of ours serves there.
    const bool served =
        facts.torch_store && master.address == plan.master_addr && master.port == text(plan.master_port);
    w.inject("TORCHELASTIC_USE_AGENT_STORE", served ? "True" : "False");
    w.offer("PET_NNODES", text(facts.nodes));
    w.own("PET_NODE_RANK", facts.node_rank, false);
    w.offer("PET_MASTER_ADDR", master.address);
    // torchrun's static rendezvous binds its port itself, so it cannot be one that the broker serves.
    w.offer("PET_MASTER_PORT", served ? text(plan.coordinator_port) : master.port);
}

// JAX and Lightning, which find the rest in Slurm's own variables.
void write_slurm_readers(Writer& w, const TaskFacts& facts, const NodePlan& plan) {
    w.offer("JAX_COORDINATOR_ADDRESS", endpoint(plan.master_addr, plan.coordinator_port));
    // Slurm sets it only where --ntasks-per-node was given; Lightning will not start without it.
    if (facts.world_size == facts.local_world_size * facts.nodes && facts.world_size > 1)
        w.offer("SLURM_NTASKS_PER_NODE", text(facts.local_world_size));
}

void write_node(Writer& w, const TaskFacts& facts) {
    if (facts.cpus > 0) w.offer("OMP_NUM_THREADS", text(facts.cpus));
    if (facts.interface.empty()) return;
    w.inject("DP_INTERFACE", facts.interface);
    w.offer("NCCL_SOCKET_IFNAME", "=" + facts.interface);  // "=": this very name, not a prefix
    w.offer("GLOO_SOCKET_IFNAME", facts.interface);
}

// What libdp reads.
void write_own(Writer& w, const TaskFacts& facts, const NodePlan& plan) {
    w.set("DP_MASTER_ADDR", plan.master_addr);
    w.set("DP_MASTER_PORT", text(plan.master_port));
    w.set("DP_WORLD_SIZE", text(facts.world_size));
    w.set("DP_RANK", text(facts.rank));
    w.set("DP_LOCAL_RANK", text(facts.local_rank));
    w.set("DP_LOCAL_WORLD_SIZE", text(facts.local_world_size));
    w.set("DP_NODE_RANK", text(facts.node_rank));
    w.set("DP_NODES", text(facts.nodes));
    w.set("DP_NODE_ADDR", plan.node_addr);
    w.set("DP_GENERATION", text(facts.generation));
    w.set("DP_SOCKET", facts.socket);
    w.set("DP_TIMEOUT", text(facts.timeout_seconds));
    const ModelParallel& sizes = facts.sizes;
    w.set("DP_TENSOR_RANK", text(sizes.rank_in(Dimension::tensor, facts.rank)));
    w.set("DP_TENSOR_SIZE", text(sizes.tensor));
    w.set("DP_DATA_RANK", text(sizes.rank_in(Dimension::data, facts.rank)));
    w.set("DP_DATA_SIZE", text(sizes.data));
    w.set("DP_PIPELINE_RANK", text(sizes.rank_in(Dimension::pipeline, facts.rank)));
    w.set("DP_PIPELINE_SIZE", text(sizes.pipeline));
}

void write_tiles(Writer& w, const TaskFacts& facts) {
    for (const TaskVariable& variable : facts.tiles) {
        const char* name = variable.name.c_str();
        switch (variable.whose) {
            case TaskVariable::Whose::job:
                w.offer(name, variable.value);
                break;
            case TaskVariable::Whose::task:
                w.own(name, variable.value, true);
                break;
            case TaskVariable::Whose::slurm:
                w.set(name, variable.value);
                break;
        }
    }
}

}  // namespace

TaskEnvironment task_environment(const TaskFacts& facts, const NodePlan& plan, const GetVariable& get) {
    Writer w(get);
    const Master master = write_world(w, facts, plan);
    write_torchrun(w, facts, plan, master);
    write_slurm_readers(w, facts, plan);
    write_node(w, facts);
    write_own(w, facts, plan);
    write_tiles(w, facts);
    for (const char* name : kLauncherVariables) w.remove(name);
    return w.finish();
}

std::vector<EnvironmentChange> NodeEnvironment::changes() const {
    std::vector<EnvironmentChange> all;
    for (const Made& made : made_) all.push_back({made.name, made.now});
    return all;
}

size_t NodeEnvironment::place_of(std::string_view name) const {
    const auto found =
        std::find_if(made_.begin(), made_.end(), [&](const Made& made) { return made.name == name; });
    return static_cast<size_t>(found - made_.begin());
}

std::optional<std::string> NodeEnvironment::get(const char* name, const GetVariable& inherited) const {
    auto there = inherited(name);
    const size_t place = place_of(name);
    const bool is_ours = place < made_.size() && (there == made_[place].now || is_of_world(name));
    return is_ours ? made_[place].before : there;
}

std::vector<EnvironmentChange> NodeEnvironment::left_of(const std::vector<EnvironmentChange>& changes_of_task,
                                                        const GetVariable& inherited) const {
    std::vector<EnvironmentChange> left;
    std::vector<char> is_decided(made_.size() + 1);
    for (const auto& change : changes_of_task) {
        is_decided[place_of(change.name)] = 1;
        if (inherited(change.name.c_str()) != change.value) left.push_back(change);
    }
    for (size_t i = 0; i < made_.size(); ++i) {
        if (is_decided[i]) continue;
        const auto there = inherited(made_[i].name.c_str());
        if (there != made_[i].before && (there == made_[i].now || is_of_world(made_[i].name)))
            left.push_back({made_[i].name, made_[i].before});
    }
    return left;
}

std::vector<EnvironmentChange> NodeEnvironment::without_blanks(const GetVariable& get) const {
    std::vector<EnvironmentChange> back;
    for (const Made& made : made_)
        if (made.is_blank && get(made.name.c_str()) == made.now) back.push_back({made.name, made.before});
    return back;
}

// The same is what comes out the same for two tasks that differ in all in which tasks of a node can, under
// two plans.
NodeEnvironment node_environment(const TaskFacts& any, const TilesOf& tiles_of, const GetVariable& get) {
    TaskFacts first = any;
    first.rank = first.local_rank = 0;
    first.cpus = 1;
    first.tiles = tiles_of(first.local_rank);
    TaskFacts last = any;
    last.rank = any.world_size - 1;
    last.local_rank = any.local_world_size - 1;
    last.cpus = 1 << 16;
    last.tiles = tiles_of(last.local_rank);
    // As long as addresses and ports can be: what is made of several of them (DP_INJECTED) shows its room.
    const std::string here(INET6_ADDRSTRLEN, 'h');
    const std::string there(INET6_ADDRSTRLEN, 't');
    const auto of_first = task_environment(first, {here, 10001, 10002, here, ""}, get).changes;
    const auto of_last = task_environment(last, {there, 10003, 10004, there, ""}, get).changes;
    NodeEnvironment node;
    for (const auto& change : of_first) {
        const auto other = std::find_if(of_last.begin(), of_last.end(),
                                        [&](const EnvironmentChange& c) { return c.name == change.name; });
        auto before = get(change.name.c_str());
        if (other != of_last.end() && *other == change) {
            node.made_.push_back({change.name, change.value, std::move(before), false});
        } else if (change.value) {
            const size_t room = std::max(change.value->size(),
                                         other != of_last.end() && other->value ? other->value->size() : 0);
            const bool is_of_tiles =
                std::any_of(first.tiles.begin(), first.tiles.end(),
                            [&](const TaskVariable& tile) { return tile.name == change.name; });
            const size_t least = is_of_tiles ? kBlankOfTiles : kBlank;
            node.made_.push_back(
                {change.name, std::string(std::max(room, least), ' '), std::move(before), true});
        }
    }
    for (std::string_view name : kOfWorld) {
        const bool is_made = std::any_of(of_first.begin(), of_first.end(),
                                         [&](const EnvironmentChange& c) { return c.name == name; });
        const auto of_user = get(std::string(name).c_str());
        if (!is_made && of_user) node.made_.push_back({std::string(name), of_user, of_user, false});
    }
    return node;
}

uint32_t cpus_of_task(uint32_t asked, uint32_t bound, uint32_t step_cpus_on_node, uint32_t local_tasks) {
    uint32_t cpus = 0;
    auto at_most = [&](uint32_t limit) {
        if (limit > 0) cpus = cpus == 0 ? limit : std::min(cpus, limit);
    };
    at_most(asked);
    at_most(bound);
    if (step_cpus_on_node > 0 && local_tasks > 0) at_most(std::max(1u, step_cpus_on_node / local_tasks));
    return cpus;
}

}  // namespace dp
