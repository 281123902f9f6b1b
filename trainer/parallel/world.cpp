// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "dp/gloo.hpp"
#include "trainer/base/node_place.hpp"
#include "trainer/devices/gpu_place.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/parallel/connected_later.hpp"
#include "trainer/parallel/gloo.hpp"
#include "trainer/parallel/host_staged.hpp"
#include "trainer/parallel/message_communicator.hpp"

namespace dp::trainer {
namespace {

// 0: use Gloo instead, to compare or to work around a problem.
constexpr const char* kNodeMemoryVariable = "DP_TRAINER_NODE_MEMORY";

// The name of the group of a pipeline's stages.
constexpr const char* kPipeline = "trainer/pipeline";

// The name of the barrier in which waiting ranks are reported.
constexpr const char* kBeforeTraining = "before the training";

// The key of the elected rank in the step's store; empty: none.
constexpr const char* kReporter = "trainer/reporter";

// Set where ranks begin again.
constexpr const char* kRestartsVariable = "TORCHELASTIC_MAX_RESTARTS";
constexpr const char* kFirstSizeVariable = "DP_FIRST_WORLD_SIZE";

// How long a failure of the communicator may be ahead of the news of a death: a node that is cut off counts as lost
// after the site's dead-after, usually 30 s.
constexpr std::chrono::seconds kDeathIsKnown{45};

// How long a rank whose communicator has failed stays, so that it is not reported as the cause of a death whose news
// is on its way.
constexpr std::chrono::seconds kCauseIsKnown{1};
constexpr const char* kNeverSet = "trainer/never-set";

// How long rank 0 waits for what a rank says before it asks in a way that tells who is missing.
constexpr std::chrono::seconds kCollects{1};

// libdp's errors name the missing ranks and their hosts, so they are passed on unchanged.
Error world_error(const dp::Error& error) {
    return {Fault::world, error.message};
}

Result<std::shared_ptr<::gloo::Context>> mesh_of(Context& context, const Group& group) {
    return gloo_mesh(context, group).map_error(world_error);
}

// A prefix of keys in the store that nobody has used, the same for all ranks, which all call.
Result<std::string> unused_place(Context& context) {
    std::string number;
    if (context.world().rank == 0)
        number = std::to_string(DP_TRY(context.add("trainer/places", 1).map_error(world_error)));
    const auto told = DP_TRY(context.broadcast({"trainer/places", {}}, number).map_error(world_error));
    return "trainer/" + std::string(told.begin(), told.end());
}

std::vector<std::uint32_t> members_of(const Context& context, const Group& group) {
    if (!group.members.empty()) return group.members;
    std::vector<std::uint32_t> all(context.world().size);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// The text of each rank of the group, of one line, in their order; every one of them calls. The first collects them in the store, at
// the group's name. They are cut off where they are too long together.
Result<std::vector<std::string>> gather(Context& context, const Group& group, const std::string& mine) {
    const std::uint32_t me = context.world().rank;
    const auto members = members_of(context, group);
    const auto key = [&](std::uint32_t rank) { return fmt::format("{}/{}", group.name, rank); };
    DP_TRY(
        context.set(key(me), mine.substr(0, DP_MAX_VALUE_BYTES / members.size() - 1)).map_error(world_error));
    for (;;) {
        std::string lines;
        for (const std::uint32_t rank : me == members.front() ? members : std::vector<std::uint32_t>()) {
            const auto text = context.get(key(rank), kCollects);
            if (!text && text.error().status != DP_ERROR_TIMEOUT)
                return tl::unexpected(world_error(text.error()));
            if (!text) {
                lines.clear();
                break;
            }
            lines.append(text->begin(), text->end()).append("\n");
        }
        // Waits for all, who have then said theirs, and names those who do not come.
        const auto told = DP_TRY(context.broadcast(group, lines).map_error(world_error));
        if (told.empty()) continue;
        std::istringstream all(std::string(told.begin(), told.end()));
        std::vector<std::string> texts(members.size());
        for (std::string& text : texts) std::getline(all, text);
        return texts;
    }
}

// Whether ranks of a node have one GPU, which NCCL refuses. `note` gets a line for the user on GPUs that make the training slower.
// Every rank calls.
Result<bool> gpus_are_shared(Context& context, const Device& device, std::optional<std::string>& note) {
    // A fact that breaks its rule is no failure here.
    const auto differ = [&](const Fact& fact) -> Result<bool> {
        const auto agreed = context.agree({fact}, {kBeforeTraining, {}});
        if (agreed) return false;
        if (agreed.error().status != DP_ERROR_INVALID) return tl::unexpected(world_error(agreed.error()));
        note = agreed.error().message;
        return true;
    };
    std::string place = place_of(device);
    // Who gives each rank a host of its own, for NCCL, wants it all the same.
    if (const char* host = std::getenv("NCCL_HOSTID"); host && *host != '\0') place.clear();
    const dp_world& here = context.world();
    place = place.empty() ? fmt::format("unknown, of rank {}", here.rank)
                          : fmt::format("{} of node {}", place, here.node_rank);
    if (DP_TRY(
            differ({"GPU", place, DP_DISTINCT,
                    "NCCL takes a GPU once, whole or as MIG instances, so all ranks reduce through the host; "
                    "give each a GPU of its own to be faster"})))
        return true;
    (void)DP_TRY(differ({"the GPU of a rank", device.facts().model, DP_SAME,
                         "each step waits for the slowest; ask for one kind (--gres=gpu:KIND:N)"}));
    return false;
}

}  // namespace

Result<World> World::join() {
    const auto joined = [](Context context) { return World(std::move(context)); };
    return Context::open().map(joined).map_error(world_error);
}

Result<void> World::agree(const std::string& what, const std::string& found, const std::string& remedy,
                          Fault fault) {
    if (!context_) return {};
    constexpr std::size_t kLongest = 250;  // of a fact, which has to be valid UTF-8; a path may be anything
    const auto agreed =
        context_->agree({Fact{what, printable(found, kLongest), DP_SAME, remedy}}, {kBeforeTraining, {}});
    if (agreed) return {};
    return fail(agreed.error().status == DP_ERROR_INVALID ? fault : Fault::world, agreed.error().message);
}

void World::claim_reporter() {
    const std::string mine = std::to_string(context_->world().rank);
    if (context_->world().rank == 0)
        (void)context_->set(kReporter, mine);
    else
        (void)context_->compare_set(kReporter, {}, mine);
}

void World::resign_as_reporter() {
    (void)context_->compare_set(kReporter, std::to_string(context_->world().rank), {});
}

std::optional<std::uint32_t> World::reporter() {
    const auto rank = context_->get(kReporter, std::chrono::milliseconds(0));
    return rank ? parse_number<std::uint32_t>({rank->data(), rank->size()}) : std::nullopt;
}

bool World::can_restart() const {
    return context_ && std::getenv(kRestartsVariable) != nullptr;
}

bool World::rejoin() {
    if (!context_) return false;
    if (!can_restart()) {
        (void)context_->wait({kNeverSet}, kCauseIsKnown);  // ends at once when the step does
        return false;
    }
    note_.reset();
    return context_->rejoin(kDeathIsKnown).has_value();
}

std::int64_t World::first_size() const {
    const char* first = can_restart() ? std::getenv(kFirstSizeVariable) : nullptr;
    return first ? parse_number<std::int64_t>(first).value_or(size()) : size();
}

// The store belongs to the step and so to the next trainer in it: the election is cleared after all have seen
// its result and before anybody can claim again.
void World::leave_together() {
    (void)context_->barrier({kBeforeTraining, {}});
    if (context_->world().rank == 0) (void)context_->set(kReporter, {});
    (void)context_->barrier({kBeforeTraining, {}});
}

Result<Groups> World::connect(Device& device, bool shares_gpu, const ModelParallel& parallel,
                              StageMessages messages) {
    if (!context_) return Groups{std::make_unique<SingleCommunicator>()};
    const bool cuda = device.name() == "cuda";
    const std::string kind = cuda && shares_gpu ? "a part of a cuda GPU" : std::string(device.name());
    // Ranks with Gloo and ranks with NCCL would wait for each other for ever.
    DP_TRY(agree("the device that the ranks train on", kind,
                 "give --device=cpu, or --device=cuda to learn why some ranks have no GPU", Fault::device));
    if (cuda && !shares_gpu) shares_gpu = DP_TRY(gpus_are_shared(*context_, device, note_));
    std::optional<std::int64_t> peer;
    if (cuda && can_restart()) peer = DP_TRY(peer_elsewhere());
    if (parallel.tensor * parallel.pipeline > 1)
        return cuda ? divide_on_gpus(device, shares_gpu, parallel, messages) : divide(device, parallel);
    if (cuda && !shares_gpu) {
        auto nccl = DP_TRY(open_nccl(*context_, device, {.survives = can_restart()}));
        nccl->set_peer(peer);
        return Groups{std::move(nccl)};
    }
    if (cuda) {
        auto staged = std::make_unique<HostStaged>(mesh({"trainer", {}}), device);
        staged->set_peer(peer);
        return Groups{std::move(staged)};
    }
    auto shared = DP_TRY(share_memory({"trainer", {}}));
    if (shared.communicator->node_share()) {
        device.set_shared_memory(shared.memory);
        // Ranks of one node need no mesh. That of each one alone tells the daemon that it is ready.
        if (context_->world().nodes == 1)
            DP_TRY(mesh_of(*context_, {"trainer/alone", {context_->world().rank}}));
    }
    return Groups{std::move(shared.communicator)};
}

// All ranks connect the groups of one dimension before those of the next, so nobody waits for one who waits for others.
Result<Groups> World::divide(Device& device, const ModelParallel& parallel) {
    // What ranks of a layer have twice they compute twice, and must get the same bits.
    DP_TRY(agree("the CPUs of a rank", device.facts().model,
                 "ranks that divide a model need the same kind of CPU and as many threads: give all the same "
                 "(OMP_NUM_THREADS)",
                 Fault::device));
    const std::uint32_t rank = context_->world().rank;
    Groups groups{mesh({"trainer", {}}), true};
    if (parallel.data > 1) {
        auto shared = DP_TRY(share_memory({"trainer/data", parallel.group_of(Dimension::data, rank)}));
        if (shared.communicator->node_share()) device.set_shared_memory(shared.memory);
        groups.data = std::move(shared.communicator);
    }
    if (parallel.tensor > 1)
        groups.tensor =
            DP_TRY(share_memory({"trainer/tensor", parallel.group_of(Dimension::tensor, rank)})).communicator;
    if (parallel.pipeline > 1)
        groups.pipeline = DP_TRY(send_in_memory({kPipeline, parallel.group_of(Dimension::pipeline, rank)}));
    return groups;
}

// As divide(). A part of a model dies with its rank, so no training survives (who asks, asks Ranks::divide_model() first).
Result<Groups> World::divide_on_gpus(Device& device, bool shares_gpu, const ModelParallel& parallel,
                                     StageMessages messages) {
    DP_TRY(agree("the GPU of a rank", device.facts().model,
                 "ranks that divide a model need the same kind of GPU: ask for one kind (--gres=gpu:KIND:N)",
                 Fault::device));
    const std::uint32_t rank = context_->world().rank;
    const auto connect = [&](const std::string& name,
                             std::vector<std::uint32_t> members) -> Result<std::unique_ptr<Communicator>> {
        if (shares_gpu) return std::make_unique<HostStaged>(mesh({name, std::move(members)}), device);
        return open_nccl(*context_, device,
                         {.name = name,
                          .members = std::move(members),
                          .messages = name == kPipeline ? messages : StageMessages::none});
    };
    Groups groups{DP_TRY(connect("trainer", {})), true};
    if (parallel.data > 1)
        groups.data = DP_TRY(connect("trainer/data", parallel.group_of(Dimension::data, rank)));
    if (parallel.tensor > 1)
        groups.tensor = DP_TRY(connect("trainer/tensor", parallel.group_of(Dimension::tensor, rank)));
    if (parallel.pipeline > 1)
        groups.pipeline = DP_TRY(connect(kPipeline, parallel.group_of(Dimension::pipeline, rank)));
    return groups;
}

// Of all ranks or some, connected when they first need it.
std::unique_ptr<Communicator> World::mesh(const Group& group) {
    const auto members = members_of(*context_, group);
    const auto me = std::ranges::find(members, context_->world().rank) - members.begin();
    return std::make_unique<ConnectedLater>("gloo", me, static_cast<std::int64_t>(members.size()),
                                            [this, group]() -> Result<std::unique_ptr<Communicator>> {
                                                return make_gloo(DP_TRY(mesh_of(*context_, group)));
                                            });
}

// For Communicator::set_peer().
Result<std::optional<std::int64_t>> World::peer_elsewhere() {
    const dp_world& here = context_->world();
    std::vector<std::int64_t> nodes;
    const std::string place = DP_TRY(unused_place(*context_));
    for (const std::string& node : DP_TRY(gather(*context_, {place, {}}, std::to_string(here.node_rank))))
        nodes.push_back(parse_number<std::int64_t>(node).value_or(0));
    return place_among(nodes, here.rank).peer_before(here.rank);
}

// For the ranks of a group, which all of them call for.
Result<NodeSetting> World::setting_of(const Group& group) {
    NodeSetting setting;
    setting.node = context_->world().node_rank;
    const auto members = members_of(*context_, group);
    setting.connect = [this, name = group.name, members](const std::string& what,
                                                         std::vector<std::uint32_t> ranks) {
        for (std::uint32_t& rank : ranks) rank = members[rank];
        return mesh_of(*context_, {name + "/" + what, std::move(ranks)});
    };
    const std::string place = DP_TRY(unused_place(*context_));
    setting.gather = [this, place, group, count = 0](const std::string& mine) mutable {
        return gather(*context_, {fmt::format("{}/{}/{}", place, group.name, ++count), group.members}, mine);
    };
    // As with Gloo, waiting for a stopped or disconnected rank ends with the step.
    setting.on_end = [this](std::function<void()> end) -> std::shared_ptr<void> {
        auto watch = context_->on_event([end = std::move(end)](const Event& event) {
            if (event.kind != DP_EVENT_DEATHS) end();
        });
        return watch ? std::make_shared<EventWatch>(std::move(*watch)) : nullptr;
    };
    if (const char* wanted = std::getenv(kNodeMemoryVariable); wanted && std::string_view(wanted) == "0")
        setting.unwanted = fmt::format("{}=0", kNodeMemoryVariable);
    return setting;
}

void World::note_why(const SharedNodes& shared) {
    if (!shared.why_not.empty())
        note_ =
            fmt::format("ranks of a node share no memory; what they send each other goes through Gloo: {}",
                        shared.why_not);
}

// The communicator of a group, which all of it call for: if a node has several of its ranks, they all-reduce in shared memory.
Result<SharedNodes> World::share_memory(const Group& group) {
    const NodeSetting setting = DP_TRY(setting_of(group));
    auto shared = DP_TRY(share_nodes(mesh(group), setting));
    note_why(shared);
    return shared;
}

// Of the stages of a pipeline: if a node has several, they send each other messages in shared memory. Only some may send to other
// nodes, so all connect now; on one node nobody does, or all when they begin.
Result<std::unique_ptr<Communicator>> World::send_in_memory(const Group& group) {
    const NodeSetting setting = DP_TRY(setting_of(group));
    auto world = context_->world().nodes == 1 ? mesh(group) : make_gloo(DP_TRY(mesh_of(*context_, group)));
    auto shared = DP_TRY(share_messages(std::move(world), setting));
    note_why(shared);
    return std::move(shared.communicator);
}

}  // namespace dp::trainer
