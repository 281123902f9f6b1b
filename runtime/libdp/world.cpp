// SPDX-License-Identifier: Apache-2.0
#include "libdp/world.hpp"

#include "base/text.hpp"
#include "common/options.hpp"

namespace dp {

Try<WorldEnvironment> world_from_environment(const GetVariable& get) {
    std::string complaint;
    auto text = [&](const char* name) { return get(name).value_or(""); };
    auto number = [&](const char* name) -> uint32_t {
        auto value = parse_number<uint32_t>(text(name));
        if (!value && complaint.empty())
            complaint = std::string(name) + "=\"" + printable(text(name), 40) +
                        "\" in the environment is no number: start this rank with srun --dp-world=auto or "
                        "dpctl launch "
                        "and leave the DP_ variables alone";
        return value.value_or(0);
    };
    WorldEnvironment world;
    world.socket = text("DP_SOCKET");
    if (world.socket.size() < 2 || world.socket[0] != '@')
        return fail("DP_SOCKET=\"" + printable(world.socket, 60) + "\" is no abstract socket name");
    world.socket.erase(0, 1);
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
