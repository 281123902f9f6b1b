// SPDX-License-Identifier: Apache-2.0
#include "libdp/pending_calls.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace dp {
namespace {

wire::Reply reply_to(uint64_t id, wire::Status status = wire::OK) {
    wire::Reply reply;
    reply.set_id(id);
    reply.set_status(status);
    reply.set_error(status == wire::OK ? "" : "why");
    reply.set_value("value");
    return reply;
}

TEST(PendingCalls, EachGetsItsOwnReply) {
    PendingCalls calls;
    PendingCalls::Call one(calls);
    PendingCalls::Call other(calls);
    EXPECT_NE(one.id(), other.id());
    calls.answer(reply_to(other.id(), wire::NOT_FOUND));
    calls.answer(reply_to(one.id() + 1000));
    EXPECT_FALSE(one.has_result());
    EXPECT_FALSE(one.wait_for(std::chrono::milliseconds(1)));
    ASSERT_TRUE(other.has_result());
    const auto result = other.take_result();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().status, DP_ERROR_NOT_FOUND);
    EXPECT_EQ(result.error().message, "why");
    std::thread daemon([&] { calls.answer(reply_to(one.id())); });
    EXPECT_TRUE(one.wait_for(std::chrono::seconds(10)));
    daemon.join();
    EXPECT_EQ(one.take_result()->value(), "value");
}

TEST(PendingCalls, TheEndIsTheResultOfAllThatHaveNoneAndOfLaterOnes) {
    PendingCalls calls;
    PendingCalls::Call answered(calls);
    PendingCalls::Call pending(calls);
    calls.answer(reply_to(answered.id()));
    EXPECT_TRUE(calls.end({DP_ERROR_ABORTED, "rank 2 died"}));
    EXPECT_FALSE(calls.end({DP_ERROR_LOST, "the daemon is gone"}));
    PendingCalls::Call later(calls);
    EXPECT_TRUE(answered.take_result());
    EXPECT_EQ(pending.take_result().error().message, "rank 2 died");
    EXPECT_EQ(later.take_result().error().status, DP_ERROR_ABORTED);
}

TEST(PendingCalls, WhoRefusesLaterOnesWaitsForThoseInProgress) {
    PendingCalls calls;
    auto pending = std::make_unique<PendingCalls::Call>(calls);
    EXPECT_TRUE(calls.refuse({DP_ERROR_LOST, "closing"}));
    EXPECT_FALSE(pending->has_result());
    {
        PendingCalls::Call later(calls);
        EXPECT_EQ(later.take_result().error().message, "closing");
    }
    std::thread other([&] {
        EXPECT_FALSE(calls.end({DP_ERROR_LOST, "the daemon is gone"})) << "it is no news";
        EXPECT_EQ(pending->take_result().error().message, "the daemon is gone");
        pending.reset();
    });
    calls.wait_until_idle();
    other.join();
}

TEST(PendingCalls, EveryWireStatusHasAMeaning) {
    EXPECT_EQ(status_of(wire::OK), DP_OK);
    EXPECT_EQ(status_of(wire::TIMEOUT), DP_ERROR_TIMEOUT);
    EXPECT_EQ(status_of(wire::NOT_FOUND), DP_ERROR_NOT_FOUND);
    EXPECT_EQ(status_of(wire::INVALID), DP_ERROR_INVALID);
    EXPECT_EQ(status_of(wire::ABORTED), DP_ERROR_ABORTED);
    EXPECT_EQ(status_of(wire::TOO_LARGE), DP_ERROR_TOO_LARGE);
    EXPECT_EQ(status_of(wire::LOST), DP_ERROR_LOST);
    EXPECT_EQ(status_of(static_cast<wire::Status>(99)), DP_ERROR_INVALID);
}

}  // namespace
}  // namespace dp
