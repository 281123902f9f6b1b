// SPDX-License-Identifier: Apache-2.0
#include "libdp/world.hpp"

#include "base/text.hpp"
#include "common/options.hpp"
#include "common/socket_names.hpp"

namespace dp {
namespace {

// A plain srun inside a rank passes the rank's variables on to tasks of a step of its own. A component of a
// heterogeneous job has a job id of its own, of which its tasks know nothing.
std::optional<std::string> other_step(std::string_view socket, const GetVariable& get) {
    const auto name = parse_ranks_socket_name(socket);
    const auto own_job = get("SLURM_JOB_ID"), own_step = get("SLURM_STEP_ID");
    if (!name || !own_job || !own_step || own_step->empty()) return std::nullopt;
    const auto parts = split(name->step, '.');
    if (parts.size() != 2 || !parse_number<uint32_t>(parts[0])) return std::nullopt;  // dpctl launch's
    if (parts[1] == *own_step && (parts[0] == *own_job || get("SLURM_HET_SIZE"))) return std::nullopt;
    return "the DP_ variables are those of step " + name->step + ", and this is a task of step " +
           printable(*own_job + "." + *own_step, 40) +
           ": an srun inside a rank passes the rank's variables on; start it with --dp-world=auto, as a "
           "world of its own, or without them (env -u DP_SOCKET srun ...)";
}

}  // namespace

Try<WorldEnvironment> world_from_environment(const GetVariable& get) {
    std::string complaint;
    auto text = [&](const char* name) { return get(name).value_or(""); };
    auto number = [&](const char* name) -> uint32_t {
        auto value = parse_number<uint32_t>(text(name));
        if (!value && complaint.empty())
            complaint = std::string(name) + "=\"" + printable(text(name), 40) +
                        "\" in the environment is not a number: start this rank with srun --dp-world=auto or "
                        "dpctl launch and leave the DP_ variables alone";
        return value.value_or(0);
    };
    WorldEnvironment world;
    world.socket = text("DP_SOCKET");
    if (world.socket.size() < 2 || world.socket[0] != '@')
        return fail("DP_SOCKET=\"" + printable(world.socket, 60) +
                    "\" is not the name of an abstract socket");
    world.socket.erase(0, 1);
    if (auto why = other_step(world.socket, get)) return fail(*why);
    world.rank = number("DP_RANK");
    world.size = number("DP_WORLD_SIZE");
    world.local_rank = number("DP_LOCAL_RANK");
    world.local_size = number("DP_LOCAL_WORLD_SIZE");
    world.node_rank = number("DP_NODE_RANK");
    world.nodes = number("DP_NODES");
    world.generation = number("DP_GENERATION");
    world.sizes = {number("DP_TENSOR_SIZE"), number("DP_DATA_SIZE"), number("DP_PIPELINE_SIZE")};
    world.master_addr = text("DP_MASTER_ADDR");
    world.master_port = static_cast<uint16_t>(number("DP_MASTER_PORT"));
    world.node_addr = text("DP_NODE_ADDR");
    world.daemon = parse_number<pid_t>(text("DP_DAEMON_PID")).value_or(0);
    auto timeout = get("DP_TIMEOUT") ? number("DP_TIMEOUT") : kDefaultTimeoutSeconds;
    world.timeout = std::chrono::seconds(timeout);
    if (!complaint.empty()) return fail(complaint);
    const uint64_t divided = uint64_t{world.sizes.tensor} * world.sizes.data * world.sizes.pipeline;
    if (divided != world.size || world.rank >= world.size || world.local_rank >= world.local_size ||
        world.node_rank >= world.nodes)
        return fail("the DP_ variables contradict each other (rank " + std::to_string(world.rank) + " of " +
                    std::to_string(world.size) + "): leave them as the launcher set them");
    return world;
}

}  // namespace dp
