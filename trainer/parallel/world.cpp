// SPDX-License-Identifier: Apache-2.0
//
// Joining and connecting the world through libdp: see world.hpp.
#include "trainer/parallel/world.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/parallel/gloo.hpp"
#include "trainer/parallel/host_staged.hpp"
#include "trainer/parallel/node_communicator.hpp"

namespace dp::trainer {
namespace {

// 0: use Gloo instead, to compare or to work around a problem.
constexpr const char* kNodeMemoryVariable = "DP_TRAINER_NODE_MEMORY";

// The name of the barrier in which waiting ranks are reported.
constexpr const char* kBeforeTraining = "before the training";

// The elected rank; empty: none.
constexpr const char* kWord = "trainer/word";

// libdp's errors name the missing ranks and their hosts, so they are passed on unchanged.
tl::unexpected<Error> from(const dp::Error& error) {
    return fail(Fault::world, error.message);
}

}  // namespace

Result<World> World::join() {
    auto context = Context::open();
    if (!context) return from(context.error());
    return World(std::move(*context));
}

// Returns the fault unless all ranks have the same.
Result<void> World::compare(const std::string& group, const Fact& fact, Fault fault) {
    auto agreed = context_->agree({fact}, {group, {}});
    if (agreed) return {};
    if (agreed.error().status == DP_ERROR_INVALID) return fail(fault, agreed.error().message);
    return from(agreed.error());
}

Result<void> World::agree(const std::string& what, const std::string& found, const std::string& remedy) {
    if (!context_) return {};
    constexpr std::size_t kLongest = 250;  // of a fact, which has to be valid UTF-8; a path may be anything
    return compare(kBeforeTraining, {what, printable(found, kLongest), DP_SAME, remedy}, Fault::usage);
}

void World::claim_reporter() {
    const std::string mine = std::to_string(context_->world().rank);
    if (context_->world().rank == 0)
        (void)context_->set(kWord, mine);
    else
        (void)context_->compare_set(kWord, {}, mine);
}

void World::give_the_word_back() {
    (void)context_->compare_set(kWord, std::to_string(context_->world().rank), {});
}

std::optional<std::uint32_t> World::who_has_the_word() {
    const auto held = context_->get(kWord, std::chrono::milliseconds(0));
    std::uint32_t rank = 0;
    if (!held || std::from_chars(held->data(), held->data() + held->size(), rank).ec != std::errc())
        return std::nullopt;
    return rank;
}

// The store belongs to the step, also for the next trainer in it: the election is cleared once all have seen
// its result, and before anybody may volunteer again.
void World::leave_together() {
    (void)context_->barrier({kBeforeTraining, {}});
    if (context_->world().rank == 0) (void)context_->set(kWord, {});
    (void)context_->barrier({kBeforeTraining, {}});
}

Result<std::unique_ptr<Communicator>> World::connect(Device& device, bool shares_gpu) {
    if (!context_) return std::make_unique<SingleCommunicator>();
    const bool cuda = device.name() == "cuda";
    const std::string kind = cuda && shares_gpu ? "a part of a cuda GPU" : std::string(device.name());
    // Ranks with Gloo and ranks with NCCL would wait for each other for ever.
    DP_TRY(compare(kBeforeTraining,
                   {"the device that the ranks train on", kind, DP_SAME,
                    "give --device=cpu, or see why a GPU is missing on some with --device=cuda"},
                   Fault::device));
    if (cuda && !shares_gpu) return open_nccl(*context_, device);
    auto gloo = DP_TRY(open_gloo(*context_));
    if (cuda) return make_through_host(std::move(gloo), device);
    return share_memory(std::move(gloo), device);
}

// If a node has several ranks, they all-reduce in shared memory.
Result<std::unique_ptr<Communicator>> World::share_memory(std::unique_ptr<Communicator> gloo,
                                                          Device& device) {
    NodeSetting setting;
    setting.node = context_->world().node_rank;
    setting.connect = [this](const std::string& name,
                             std::vector<std::uint32_t> ranks) -> Result<std::shared_ptr<::gloo::Context>> {
        auto mesh = gloo_mesh(*context_, {"trainer/" + name, std::move(ranks)});
        if (!mesh) return from(mesh.error());
        return std::move(*mesh);
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
    auto shared = share_nodes(std::move(gloo), device, setting);
    if (!shared) return tl::unexpected(shared.error());
    if (!shared->why_not.empty())
        note_ = fmt::format("ranks of a node share no memory, and reduce through Gloo alone: {}",
                            shared->why_not);
    return std::move(shared->communicator);
}

}  // namespace dp::trainer
