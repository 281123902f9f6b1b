// SPDX-License-Identifier: Apache-2.0
//
// Joining and connecting the world through libdp: see world.hpp.
#include "trainer/parallel/world.hpp"

#include <fmt/format.h>

#include <utility>

#include "trainer/devices/open.hpp"
#include "trainer/parallel/gloo.hpp"
#include "trainer/parallel/through_host.hpp"

namespace dp::trainer {
namespace {

// libdp's errors name the missing ranks and their hosts: they are passed on as they are.
tl::unexpected<Error> from(const dp::Error& error) {
    return fail(Fault::world, error.message);
}

}  // namespace

Result<World> World::join() {
    auto context = Context::open();
    if (!context) return from(context.error());
    return World(std::move(*context));
}

// All have the same, or leave with the fault.
Result<void> World::compare(const std::string& group, const Fact& fact, Fault fault) {
    auto agreed = context_->agree({fact}, {group, {}});
    if (agreed) return {};
    if (agreed.error().status == DP_ERROR_INVALID) return fail(fault, agreed.error().message);
    return from(agreed.error());
}

Result<void> World::agree(const std::string& what, const std::string& found, const std::string& remedy) {
    if (!context_) return {};
    constexpr std::size_t kLongest = 256;  // bytes of a fact
    return compare("trainer/found", {what, found.substr(0, kLongest), DP_SAME, remedy}, Fault::usage);
}

Result<std::unique_ptr<Communicator>> World::connect(Device& device, bool shares_gpu) {
    if (!context_) return std::make_unique<SingleCommunicator>();
    const bool cuda = device.name() == "cuda";
    const std::string kind = cuda && shares_gpu ? "a part of a cuda GPU" : std::string(device.name());
    // Ranks that chose Gloo and ranks that chose NCCL would wait for each other for ever.
    const auto agreed = compare("trainer/device",
                                {"the device that the ranks train on", kind, DP_SAME,
                                 "give --device=cpu, or see why a GPU is missing on some with --device=cuda"},
                                Fault::device);
    if (!agreed) return tl::make_unexpected(agreed.error());
    if (cuda && !shares_gpu) return open_nccl(*context_, device);
    auto gloo = open_gloo(*context_);
    if (!gloo || !cuda) return gloo;
    return make_through_host(std::move(*gloo), device);
}

}  // namespace dp::trainer
