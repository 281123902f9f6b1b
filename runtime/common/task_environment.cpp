// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.hpp"
#include "common/hostfile.hpp"

namespace dp {
namespace {

std::string text(uint32_t number) {
    return std::to_string(number);
}

// "10.0.0.1:29000", "[fd00::1]:29000".
std::string endpoint(const std::string& address, uint16_t port) {
    const bool v6 = address.find(':') != std::string::npos;
    return (v6 ? "[" + address + "]" : address) + ":" + text(port);
}

// The number of changes without tiles, and the length of DP_INJECTED.
constexpr size_t kMostChanges = 64;
constexpr size_t kMostInjected = 1200;

// In DP_INJECTED a value has no blanks; the names of files may.
constexpr char kBlank = '\x1f';
std::string without_blanks(std::string value) {
    std::ranges::replace(value, ' ', kBlank);
    return value;
}
std::string with_blanks(std::string_view value) {
    std::string out(value);
    std::ranges::replace(out, kBlank, ' ');
    return out;
}

class Writer {
 public:
    explicit Writer(const GetVariable& get) : get_(get) {
        out_.changes.reserve(kMostChanges);
        injected_.reserve(kMostInjected);
        const std::string before = get(kInjected).value_or("");
        for (std::string_view word : split(before, ' '))
            if (size_t equals = word.find('='); equals != std::string_view::npos)
                outer_.emplace(word.substr(0, equals), with_blanks(word.substr(equals + 1)));
    }

    // The user's own value in the environment; empty counts as missing, as in PyTorch.
    std::optional<std::string> of_user(const char* name) const {
        auto value = get_(name);
        if (!value || value->empty()) return std::nullopt;
        auto outer = outer_.find(name);
        if (outer != outer_.end() && outer->second == *value) return std::nullopt;
        return value;
    }

    // A name that only we use (DP_...).
    void set(const char* name, std::string value) { out_.changes.push_back({name, std::move(value)}); }

    // A name that others read, too; replaces any value.
    void inject(const char* name, const std::string& value) {
        set(name, value);
        injected_.append(injected_.empty() ? "" : " ").append(name).append("=").append(without_blanks(value));
    }

    // The same, but the user's value wins. Returns what the task will see.
    std::string offer(const char* name, const std::string& value) {
        if (auto kept = of_user(name)) {
            out_.kept.emplace_back(name);
            return *kept;
        }
        inject(name, value);
        return value;
    }

    // Like offer, with one warning if the user's value contradicts the plan.
    std::string offer_world(const char* name, const std::string& value) {
        std::string seen = offer(name, value);
        if (seen != value)
            contradictions_ += (contradictions_.empty() ? "" : ", ") + std::string(name) + "=" +
                               printable(seen, 80) + " (this step's is " + value + ")";
        return seen;
    }

    // A task's own value, for which no job-wide value can be right.
    void own(const char* name, const std::string& value, bool warn) {
        if (warn && of_user(name))
            same_for_all_ +=
                (same_for_all_.empty() ? "" : ", ") + std::string(name) + "=" + printable(*get_(name), 20);
        inject(name, value);
    }
    void own(const char* name, uint32_t value, bool warn) { own(name, text(value), warn); }

    void remove_unless_set(const char* name) {
        const bool is_set = std::any_of(out_.changes.begin(), out_.changes.end(),
                                        [&](const EnvironmentChange& c) { return c.name == name; });
        if (!is_set && get_(name)) out_.changes.push_back({name, std::nullopt});
    }

    // An outer step's variable that this one does not set would be about the wrong step.
    TaskEnvironment finish() {
        for (const auto& [name, value] : outer_)
            if (get_(name.c_str()) == value) remove_unless_set(name.c_str());
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

// kNamesOfWorld: env:// of PyTorch, and with it Megatron-LM, DeepSpeed, Accelerate, Composer.
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

// Tells torch that a server is at MASTER_PORT already, so that rank 0 does not bind it. With "True" every rank
// opens the store as a client, through a constructor that asks for libuv (rendezvous.py). A torch without libuv
// refuses that whatever USE_LIBUV says. "1" is true to its TCPStore.cpp alone: rank 0 tries to bind, cannot,
// and becomes a client.
constexpr const char* kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";

// What torchrun's children rely on, and (PET_) what it reads itself if the tasks are launchers, one per
// node. torch/distributed/run.py, torch/distributed/elastic/agent/server/local_elastic_agent.py.
void write_torchrun(Writer& w, const TaskFacts& facts, const NodePlan& plan, const Master& master) {
    w.own("ROLE_RANK", facts.rank, false);
    w.own("ROLE_WORLD_SIZE", facts.world_size, false);
    w.offer("ROLE_NAME", "default");
    // Not TORCHELASTIC_RUN_ID: Lightning takes it for torchrun's promise to requeue the job.
    w.inject("TORCHELASTIC_RESTART_COUNT", text(facts.generation));
    if (facts.settings.restarts_ranks())
        w.inject("TORCHELASTIC_MAX_RESTARTS", text(*facts.settings.restarts));
    // If the user named another master, none of our servers is there.
    const bool served = facts.settings.serves_torch() && master.address == plan.master_addr &&
                        master.port == text(plan.master_port);
    if (served) w.inject(kUseAgentStore, w.of_user("USE_LIBUV") == "0" ? "1" : "True");
    w.remove_unless_set(kUseAgentStore);
    w.offer("PET_NNODES", text(facts.nodes));
    w.own("PET_NODE_RANK", facts.node_rank, false);
    w.offer("PET_MASTER_ADDR", master.address);
    // torchrun's static rendezvous binds its port itself, so it cannot be one that the broker serves.
    w.offer("PET_MASTER_PORT", served ? text(plan.coordinator_port) : master.port);
}

// For JAX and Lightning, which find the rest in Slurm's own variables.
void write_slurm_readers(Writer& w, const TaskFacts& facts, const NodePlan& plan) {
    if (facts.settings.outlives_nodes()) {
        // Slurm counts spare tasks, and does not know which ranks have moved.
        w.set("SLURM_PROCID", text(facts.rank));
        w.set("SLURM_NTASKS", text(facts.world_size));
        w.set("SLURM_NPROCS", text(facts.world_size));
        w.set("SLURM_STEP_NUM_TASKS", text(facts.world_size));
        w.set("SLURM_NODEID", text(facts.node_rank));
        w.set("SLURM_NNODES", text(facts.nodes));
        w.set("SLURM_STEP_NUM_NODES", text(facts.nodes));
    }
    w.offer("JAX_COORDINATOR_ADDRESS", endpoint(plan.master_addr, plan.coordinator_port));
    // Slurm sets it only with --ntasks-per-node; Lightning does not start without it.
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

// What the user has set stays; where that is the file, all is left alone. INIT also logs which transports are chosen, GRAPH over what.
void write_nccl(Writer& w, const TaskFacts& facts) {
    if (facts.nccl_debug_file.empty()) return;
    const std::string file = for_nccl(facts.nccl_debug_file);
    if (w.offer("NCCL_DEBUG_FILE", file) != file) return;
    w.offer("NCCL_DEBUG", "INFO");
    w.offer("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH");
}

// The variables that libdp reads.
void write_own(Writer& w, const TaskFacts& facts, const NodePlan& plan) {
    w.set("DP_MASTER_ADDR", plan.master_addr);
    if (!facts.hostfile.empty()) w.set(kHostfileVariable, facts.hostfile);
    w.set("DP_DAEMON_PID", text(facts.daemon));
    w.set("DP_MASTER_PORT", text(plan.master_port));
    w.set("DP_WORLD_SIZE", text(facts.world_size));
    w.set("DP_FIRST_WORLD_SIZE", text(facts.first_world_size));
    w.set("DP_RANK", text(facts.rank));
    w.set("DP_LOCAL_RANK", text(facts.local_rank));
    w.set("DP_LOCAL_WORLD_SIZE", text(facts.local_world_size));
    w.set("DP_NODE_RANK", text(facts.node_rank));
    w.set("DP_NODES", text(facts.nodes));
    w.set("DP_NODE_ADDR", plan.node_addr);
    w.set("DP_GENERATION", text(facts.generation));
    w.set("DP_SOCKET", facts.socket);
    w.set("DP_TIMEOUT", text(*facts.settings.timeout_seconds));
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
        if (variable.whose == TaskVariable::Whose::job)
            w.offer(name, variable.value);
        else if (variable.whose == TaskVariable::Whose::task)
            w.own(name, variable.value, true);
        else
            w.set(name, variable.value);
    }
    for (const char* name : kNamesOfTiles) w.remove_unless_set(name);
}

}  // namespace

TaskEnvironment task_environment(const TaskFacts& facts, const NodePlan& plan, const GetVariable& get) {
    Writer w(get);
    const Master master = write_world(w, facts, plan);
    write_torchrun(w, facts, plan, master);
    write_slurm_readers(w, facts, plan);
    write_node(w, facts);
    write_nccl(w, facts);
    write_own(w, facts, plan);
    write_tiles(w, facts);
    for (const char* name : kLauncherVariables) w.remove_unless_set(name);
    return w.finish();
}

std::vector<EnvironmentChange> node_variables(const TaskFacts& any, const GetVariable& get) {
    constexpr std::array<std::string_view, 10> kNames = {
        "WORLD_SIZE",    "LOCAL_WORLD_SIZE",    "NODE_RANK",    "GROUP_RANK", "GROUP_WORLD_SIZE",
        "DP_WORLD_SIZE", "DP_LOCAL_WORLD_SIZE", "DP_NODE_RANK", "DP_NODES",   "DP_GENERATION"};
    auto changes = task_environment(any, {}, get).changes;
    std::erase_if(changes, [&](const EnvironmentChange& change) {
        return std::find(kNames.begin(), kNames.end(), change.name) == kNames.end();
    });
    return changes;
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
