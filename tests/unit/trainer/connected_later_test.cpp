// SPDX-License-Identifier: Apache-2.0
//
// A communicator that connects once, when it is first used, and says why where it cannot.
#include "trainer/parallel/connected_later.hpp"

#include <gtest/gtest.h>

#include "devices.hpp"

namespace dp::trainer {
namespace {

TEST(ConnectedLater, ConnectsOnceAndOnlyWhenItIsUsed) {
    const auto device = open_cpu(1);
    const Tensor tensor = device->make(Type::f32, {4});
    int connected = 0;
    ConnectedLater later("gloo", 3, 8, [&]() -> Result<std::unique_ptr<Communicator>> {
        ++connected;
        return std::make_unique<SingleCommunicator>();
    });
    EXPECT_EQ(later.name(), "gloo");
    EXPECT_EQ(later.rank(), 3);
    EXPECT_EQ(later.size(), 8);
    EXPECT_TRUE(later.wait_all_reduces()) << "nothing was started";
    EXPECT_EQ(connected, 0);
    EXPECT_TRUE(later.all_reduce(tensor, Reduction::sum));
    EXPECT_TRUE(later.start_all_reduce(tensor));
    EXPECT_TRUE(later.wait_all_reduces());
    EXPECT_TRUE(later.all_gather(tensor));
    EXPECT_TRUE(later.reduce_scatter(tensor));
    EXPECT_TRUE(later.broadcast(tensor, 0));
    EXPECT_EQ(connected, 1);
}

TEST(ConnectedLater, TellsWhyItCouldNot) {
    const auto device = open_cpu(1);
    ConnectedLater later("gloo", 0, 2, []() -> Result<std::unique_ptr<Communicator>> {
        return fail(Fault::world, "no way there");
    });
    const auto done = later.all_reduce(device->make(Type::f32, {1}), Reduction::sum);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "no way there");
}

}  // namespace
}  // namespace dp::trainer
