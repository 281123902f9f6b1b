// SPDX-License-Identifier: Apache-2.0
#include "engine/store.hpp"

#include <gtest/gtest.h>

#include "dp/dp.h"

namespace dp {
namespace {

wire::Request set(const std::string& key, const std::string& value) {
    wire::Request r;
    r.mutable_set()->set_key(key);
    r.mutable_set()->set_value(value);
    return r;
}
wire::Request get(const std::string& key, bool now = false) {
    wire::Request r;
    r.set_timeout_ms(1000);
    r.mutable_get()->set_key(key);
    r.mutable_get()->set_now(now);
    return r;
}
wire::Request add(const std::string& key, int64_t amount) {
    wire::Request r;
    r.mutable_add()->set_key(key);
    r.mutable_add()->set_amount(amount);
    return r;
}
wire::Request swap(const std::string& key, const std::string& expected, const std::string& desired) {
    wire::Request r;
    r.mutable_compare_set()->set_key(key);
    r.mutable_compare_set()->set_expected(expected);
    r.mutable_compare_set()->set_desired(desired);
    return r;
}

constexpr Time kNow{5000};

TEST(Store, SetThenGet) {
    Store store;
    EXPECT_EQ(store.handle({0, 1}, set("k", "v"), kNow)[0].reply.status(), wire::OK);
    auto got = store.handle({1, 1}, get("k"), kNow);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].reply.value(), "v");
}

TEST(Store, OneSetWakesAllThatWaitWithOneAnswer) {
    Store store;
    for (uint32_t rank = 1; rank < 5; ++rank) EXPECT_TRUE(store.handle({rank, 7}, get("k"), kNow).empty());
    auto answers = store.handle({0, 1}, set("k", "v"), kNow);
    ASSERT_EQ(answers.size(), 2u);  // the setter's, and one for the four
    EXPECT_EQ(answers[1].callers.size(), 4u);
    EXPECT_EQ(answers[1].reply.value(), "v");
    EXPECT_EQ(store.next_deadline(), std::nullopt);
}

TEST(Store, WaitWantsAllKeys) {
    Store store;
    wire::Request wait;
    wait.set_timeout_ms(1000);
    for (const char* key : {"a", "b", "a"}) wait.mutable_wait()->add_keys(key);
    EXPECT_TRUE(store.handle({0, 1}, wait, kNow).empty());
    EXPECT_EQ(store.handle({1, 1}, set("a", ""), kNow).size(), 1u);
    auto answers = store.handle({1, 2}, set("b", ""), kNow);
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[1].callers[0], (Caller{0, 1}));
}

TEST(Store, AWaitEndsAtItsDeadlineAndNamesTheKey) {
    Store store;
    store.handle({0, 1}, get("never"), kNow);
    EXPECT_EQ(store.next_deadline(), kNow + Time(1000));
    EXPECT_TRUE(store.expire(kNow + Time(999)).empty());
    auto answers = store.expire(kNow + Time(1000));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].reply.status(), wire::TIMEOUT);
    EXPECT_EQ(answers[0].reply.error(), "no rank has set key \"never\" within 1 s");
    // The late value finds nobody.
    EXPECT_EQ(store.handle({1, 1}, set("never", "v"), kNow).size(), 1u);
    auto shorter = get("later");
    shorter.set_timeout_ms(300);
    store.handle({0, 2}, shorter, kNow);
    EXPECT_EQ(store.expire(kNow + Time(300)).at(0).reply.error(),
              "no rank has set key \"later\" within 300 ms");
}

TEST(Store, AddCountsAndRefusesWhatIsNoNumber) {
    Store store;
    EXPECT_EQ(store.handle({0, 1}, add("n", 5), kNow)[0].reply.number(), 5);
    EXPECT_EQ(store.handle({0, 2}, add("n", -7), kNow)[0].reply.number(), -2);
    EXPECT_EQ(store.handle({0, 3}, get("n"), kNow)[0].reply.value(), "-2");
    store.handle({0, 4}, set("text", "5x"), kNow);
    EXPECT_EQ(store.handle({0, 5}, add("text", 1), kNow)[0].reply.status(), wire::INVALID);
    store.handle({0, 6}, set("max", "9223372036854775807"), kNow);
    EXPECT_EQ(store.handle({0, 7}, add("max", 1), kNow)[0].reply.status(), wire::INVALID);
}

TEST(Store, CompareSetHasOneWinner) {
    Store store;
    EXPECT_EQ(store.handle({0, 1}, swap("k", "", "a"), kNow)[0].reply.value(), "a");
    EXPECT_EQ(store.handle({1, 1}, swap("k", "", "b"), kNow)[0].reply.value(), "a");
    EXPECT_EQ(store.handle({1, 2}, swap("k", "a", "b"), kNow)[0].reply.value(), "b");
    EXPECT_EQ(store.handle({1, 3}, swap("other", "x", "b"), kNow)[0].reply.value(), "");
    EXPECT_EQ(store.handle({1, 4}, get("other", true), kNow)[0].reply.status(), wire::NOT_FOUND);
}

TEST(Store, LimitsHold) {
    Store store;
    EXPECT_EQ(store.handle({0, 1}, set("", "v"), kNow)[0].reply.status(), wire::INVALID);
    EXPECT_EQ(store.handle({0, 2}, set(std::string(DP_MAX_KEY_BYTES + 1, 'k'), "v"), kNow)[0].reply.status(),
              wire::INVALID);
    EXPECT_EQ(
        store.handle({0, 3}, set("k", std::string(DP_MAX_VALUE_BYTES + 1, 'v')), kNow)[0].reply.status(),
        wire::TOO_LARGE);
    const std::string large(DP_MAX_VALUE_BYTES, 'v');
    size_t stored = 0;
    while (store.handle({0, 4}, set("k" + std::to_string(stored), large), kNow)[0].reply.status() == wire::OK)
        ++stored;
    EXPECT_LE(stored * large.size(), kMaxStoreBytes);
    EXPECT_GT((stored + 1) * large.size(), kMaxStoreBytes - large.size());
    // Replacing needs no more room, and what is stored stays.
    EXPECT_EQ(store.handle({0, 5}, set("k0", "small"), kNow)[0].reply.status(), wire::OK);
}

TEST(Store, ANumberThatStillWaitsIsRefused) {
    Store store;
    EXPECT_TRUE(store.handle({0, 1}, get("a"), kNow).empty());
    EXPECT_EQ(store.handle({0, 1}, get("b"), kNow)[0].reply.status(), wire::INVALID);
    EXPECT_EQ(store.handle({1, 1}, set("a", "v"), kNow).size(), 2u);
    EXPECT_EQ(store.handle({1, 2}, set("b", "v"), kNow).size(), 1u);
}

TEST(Store, TimesFromTheWireCannotOverflow) {
    Store store;
    auto forever = get("k");
    forever.set_timeout_ms(INT64_MAX);
    store.handle({0, 1}, forever, kNow);
    EXPECT_GT(*store.next_deadline(), kNow);
    auto never = get("k");
    never.set_timeout_ms(INT64_MIN);
    store.handle({0, 2}, never, kNow);
    EXPECT_EQ(store.expire(kNow).size(), 1u);
}

TEST(Store, ADroppedRankIsForgotten) {
    Store store;
    store.handle({3, 1}, get("k"), kNow);
    store.handle({4, 1}, get("k"), kNow);
    store.drop(3);
    auto answers = store.handle({0, 1}, set("k", "v"), kNow);
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[1].callers, (std::vector<Caller>{{4, 1}}));
}

TEST(Store, AnUnknownOperationIsRefused) {
    Store store;
    EXPECT_EQ(store.handle({0, 1}, {}, kNow)[0].reply.status(), wire::INVALID);
}

}  // namespace
}  // namespace dp
