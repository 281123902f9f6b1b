// SPDX-License-Identifier: Apache-2.0
//
// The store that PyTorch's clients see: what each request gets back, who is woken, what is refused.
#include "torch/store.hpp"

#include <gtest/gtest.h>

#include <random>

#include "bytes.hpp"

namespace dp {
namespace {

using namespace torch_bytes;

class TorchStoreTest : public testing::Test {
 protected:
    static constexpr TorchClient kOld = 50;  // a client of PyTorch 1.13; the others are recent ones
    TorchStore store;
    std::map<TorchClient, std::string> got;
    std::map<TorchClient, std::string> closed;
    std::vector<TorchClient> arrived;

    void SetUp() override {
        for (TorchClient id : {1, 2, 3, 4}) {
            store.connect(id);
            send(id, kGreeting);
        }
        store.connect(kOld);
    }
    void send(TorchClient id, std::string_view bytes) {
        while (!bytes.empty() && !closed.contains(id)) {
            TorchActions actions = store.receive(id, bytes);
            for (const auto& one : actions.sends) got[one.client] += one.head + (one.value ? *one.value : "");
            for (const auto& [who, why] : actions.closed) closed[who] = why;
            if (actions.arrived) arrived.push_back(id);
            if (actions.taken == 0) break;
            bytes.remove_prefix(actions.taken);
        }
    }
    // What the client gets for it, and nobody else anything.
    std::string ask(TorchClient id, std::string_view bytes) {
        got.clear();
        send(id, bytes);
        EXPECT_LE(got.size(), got.count(id)) << "somebody else got something, too";
        return got[id];
    }
    static std::string set(const std::string& key, const std::string& value) {
        return op(1) + s(key) + s(value);
    }
    static std::string get(const std::string& key) { return op(3) + s(key); }
    static std::string add(const std::string& key, int64_t n) {
        return op(4) + s(key) + u64(static_cast<uint64_t>(n));
    }
    static std::string wait(const std::vector<std::string>& keys) { return op(6) + list(keys); }
};

const std::string kStop = op(0);

TEST_F(TorchStoreTest, SetAndGet) {
    EXPECT_EQ(ask(1, set("k", "v")), "");
    EXPECT_EQ(ask(2, get("k")), s("v"));
    EXPECT_EQ(ask(2, get("missing")), s(""));
    EXPECT_EQ(ask(1, set("k", "")), "");
    EXPECT_EQ(ask(2, get("k")), s(""));
    EXPECT_EQ(ask(2, op(7)), u64(1));
}

TEST_F(TorchStoreTest, CompareSet) {
    auto compare_set = [](const std::string& expected, const std::string& wanted) {
        return op(2) + s("k") + s(expected) + s(wanted);
    };
    EXPECT_EQ(ask(1, compare_set("x", "a")), s("x"));  // as PyTorch: what was expected
    EXPECT_EQ(ask(1, get("k")), s(""));
    EXPECT_EQ(ask(1, compare_set("", "a")), s("a"));
    EXPECT_EQ(ask(2, compare_set("", "b")), s("a"));
    EXPECT_EQ(ask(2, compare_set("a", "b")), s("b"));
    EXPECT_EQ(ask(1, get("k")), s("b"));
}

TEST_F(TorchStoreTest, Add) {
    EXPECT_EQ(ask(1, add("n", 5)), u64(5));
    EXPECT_EQ(ask(2, add("n", -7)), u64(static_cast<uint64_t>(-2)));
    EXPECT_EQ(ask(2, get("n")), s("-2"));
    ask(1, set("n", " 40 and more"));
    EXPECT_EQ(ask(1, add("n", 2)), u64(42));
    ask(1, set("n", "9223372036854775807"));
    EXPECT_EQ(ask(1, add("n", 1)), "");
    EXPECT_EQ(closed[1], "key \"n\" would overflow 64 bits");
    ask(2, set("n", "none"));
    EXPECT_EQ(ask(2, add("n", 1)), "");
    EXPECT_EQ(closed[2], "it added to key \"n\", which holds no number");
    EXPECT_EQ(ask(3, get("n")), s("none"));
}

TEST_F(TorchStoreTest, AProgramArrivesOnceWhenItCountsItself) {
    for (TorchClient id : {1, 2}) send(id, add("/init/", 1) + set("init/2", "1") + add("init", 1));
    EXPECT_TRUE(arrived.empty());
    for (int i = 0; i < 2; ++i) {
        send(kOld, op(3) + s("init/") + u64(1));  // its operations are numbered from SET
        send(2, add("init/", 1));
    }
    EXPECT_EQ(arrived, (std::vector<TorchClient>{kOld, 2}));
}

TEST_F(TorchStoreTest, CheckDeleteAppend) {
    ask(1, set("a", "1"));
    EXPECT_EQ(ask(1, op(5) + list({"a"})), op(0));
    EXPECT_EQ(ask(1, op(5) + list({"a", "b"})), op(1));
    EXPECT_EQ(ask(1, op(5) + list({})), op(0));
    EXPECT_EQ(ask(1, op(8) + s("a")), u64(1));
    EXPECT_EQ(ask(1, op(8) + s("a")), u64(0));
    EXPECT_EQ(ask(1, op(9) + s("a") + s("x")), "");
    EXPECT_EQ(ask(1, op(9) + s("a") + s("yz")), "");
    EXPECT_EQ(ask(1, get("a")), s("xyz"));
    EXPECT_EQ(ask(1, op(13) + u(0xfedcba98, 4)), u(0xfedcba98, 4));
}

TEST_F(TorchStoreTest, ListKeys) {
    EXPECT_EQ(ask(1, op(17)), u64(0));
    send(1, set("a", "1") + op(14) + s("queue") + s("x") + set("bc", ""));
    const std::string keys = ask(2, op(17));
    EXPECT_TRUE(keys == u64(2) + s("a") + s("bc") || keys == u64(2) + s("bc") + s("a")) << keys;
}

TEST_F(TorchStoreTest, ABarrierIsPassedWhenTheLastHasCome) {
    const auto barrier = [](uint64_t size) { return op(18) + s("b") + u64(size); };
    EXPECT_EQ(ask(1, barrier(3)), "");
    EXPECT_EQ(ask(2, barrier(3)), "");
    EXPECT_EQ(ask(2, op(12)), op(1));  // it gives up, but is counted
    EXPECT_EQ(ask(4, get("b")), s("2"));
    got.clear();
    send(3, barrier(3));
    EXPECT_EQ(got, (std::map<TorchClient, std::string>{{1, kStop}, {3, kStop}}));
    EXPECT_EQ(ask(2, barrier(3)), kStop) << "who comes late passes";
    ask(1, set("b", "none"));
    EXPECT_EQ(ask(1, barrier(3)), "");
    EXPECT_EQ(closed[1], "it added to key \"b\", which holds no number");
}

TEST_F(TorchStoreTest, SeveralAtOnce) {
    EXPECT_EQ(ask(1, op(11) + u64(2) + s("a") + s("1") + s("b") + s("22")), "");
    EXPECT_EQ(ask(2, op(10) + list({"b", "none", "a"})), s("22") + s("") + s("1"));
}

TEST_F(TorchStoreTest, AWaitEndsWhenTheLastKeyHasCome) {
    EXPECT_EQ(ask(1, wait({"a", "b", "b"})), "");
    EXPECT_EQ(ask(2, wait({"b"})), "");
    EXPECT_EQ(ask(3, set("a", "")), "");
    got.clear();
    send(3, add("b", 1));
    EXPECT_EQ(got, (std::map<TorchClient, std::string>{{1, kStop}, {2, kStop}, {3, u64(1)}}));
    EXPECT_EQ(ask(1, wait({"a", "b"})), kStop);  // at once
    EXPECT_EQ(ask(1, wait({})), kStop);
    EXPECT_EQ(ask(3, set("b", "2")), "");  // nobody waits any more
}

TEST_F(TorchStoreTest, EveryWayToMakeAKeyEndsAWait) {
    const std::vector<std::string> ways = {set("k", ""),
                                           op(2) + s("k") + s("") + s("v"),
                                           op(9) + s("k") + s("v"),
                                           op(11) + u64(1) + s("k") + s("v"),
                                           op(14) + s("k") + s("v"),
                                           add("k", 0)};
    for (const auto& way : ways) {
        send(1, wait({"k"}));
        got.clear();
        send(2, way);
        EXPECT_EQ(got[1], kStop) << static_cast<int>(way[0]);
        send(2, op(8) + s("k"));
        send(2, op(15) + s("k"));
    }
}

TEST_F(TorchStoreTest, AWaitCanBeCancelled) {
    ask(1, wait({"a"}));
    EXPECT_EQ(ask(1, op(12)), op(1));
    EXPECT_EQ(ask(2, set("a", "")), "");
    EXPECT_EQ(ask(1, op(12)), op(1));  // no wait: the same answer
}

TEST_F(TorchStoreTest, AnyOtherRequestEndsAWait) {
    // As a client of 1.13 does that got no answer in time: it just goes on.
    ask(kOld, op(5) + list({"late"}));
    EXPECT_EQ(ask(kOld, op(3) + s("n") + u64(1)), u64(1));
    EXPECT_EQ(ask(2, set("late", "")), "");
    EXPECT_EQ(ask(kOld, op(2) + s("n")), s("1"));
}

TEST_F(TorchStoreTest, WhoIsGoneIsWokenNoMore) {
    ask(1, wait({"a"}));
    store.disconnect(1);
    EXPECT_EQ(ask(2, set("a", "")), "");
    EXPECT_EQ(ask(1, get("a")), "");  // not even served
}

TEST_F(TorchStoreTest, Queues) {
    EXPECT_EQ(ask(1, op(15) + s("q")), u64(0));
    ask(1, op(14) + s("q") + s("first"));
    ask(1, op(14) + s("q") + s("second"));
    EXPECT_EQ(ask(2, op(16) + s("q")), u64(2));
    EXPECT_EQ(ask(2, op(5) + list({"q"})), op(0));
    EXPECT_EQ(ask(2, op(7)), u64(0));  // a queue is no key
    EXPECT_EQ(ask(2, op(15) + s("q")), u64(2) + s("first"));
    EXPECT_EQ(ask(2, op(15) + s("q")), u64(1) + s("second"));
    EXPECT_EQ(ask(2, op(16) + s("q")), u64(0));
}

TEST_F(TorchStoreTest, OneElementOfAQueueWakesOne) {
    ask(2, wait({"q"}));
    ask(3, wait({"q"}));
    got.clear();
    send(1, op(14) + s("q") + s("x"));
    EXPECT_EQ(got, (std::map<TorchClient, std::string>{{2, kStop}}));
    got.clear();
    send(1, op(14) + s("q") + s("y"));
    EXPECT_EQ(got, (std::map<TorchClient, std::string>{{3, kStop}}));
}

TEST_F(TorchStoreTest, AClientOf1_13WatchesAKeyOnAConnectionOfItsOwn) {
    EXPECT_EQ(ask(kOld, op(7) + s("k")), op(3));
    auto news = [&](std::string_view request) {
        got.clear();
        send(1, request);
        return got[kOld];
    };
    EXPECT_EQ(news(set("k", "a")), op(1) + s("k") + s("") + s("a"));
    EXPECT_EQ(news(set("k", "b")), op(0) + s("k") + s("a") + s("b"));
    EXPECT_EQ(news(op(8) + s("k")), op(2) + s("k") + s("b") + s(""));
    EXPECT_EQ(news(set("other", "")), "");
    store.disconnect(kOld);
    EXPECT_EQ(news(set("k", "c")), "");
}

TEST_F(TorchStoreTest, WhatMakesNoSenseClosesThatConnectionAlone) {
    send(1, op(3) + u64(1 << 20));
    EXPECT_NE(closed[1], "");
    EXPECT_EQ(ask(2, get("k")), s(""));
    EXPECT_EQ(closed.size(), 1u);
}

TEST_F(TorchStoreTest, AFullStoreClosesWhoWantsMoreAndKeepsTheRest) {
    const std::string value(8 << 20, 'v');
    for (int i = 0; closed.empty() && i < 100; ++i) send(1, set("k" + std::to_string(i), value));
    EXPECT_NE(closed[1].find("full (256 MiB)"), std::string::npos) << closed[1];
    EXPECT_LE(store.bytes(), kMaxTorchBytes);
    EXPECT_GT(store.bytes(), kMaxTorchBytes - (10 << 20));
    EXPECT_EQ(ask(2, get("k3")), s(value));
    EXPECT_EQ(ask(2, set("k3", "small")), "");
    EXPECT_EQ(ask(2, get("k3")), s("small"));
    EXPECT_EQ(closed.size(), 1u);
}

TEST_F(TorchStoreTest, SmallKeysCountForWhatTheyCost) {
    for (int i = 0; i < 31; ++i) send(1, set("big" + std::to_string(i), std::string(8 << 20, 'v')));
    ASSERT_TRUE(closed.empty());
    const size_t left = kMaxTorchBytes - store.bytes();
    int keys = 0;
    while (closed.empty() && keys < 100000) send(1, set(std::to_string(++keys), ""));
    EXPECT_NE(closed[1].find("full"), std::string::npos);
    EXPECT_LT(static_cast<size_t>(keys), left / kTorchEntryBytes + 2);
    // Waiting for many counts, too.
    std::string request = op(6) + u64(100000);
    for (int i = 0; i < 100000; ++i) request += s("w" + std::to_string(i));
    send(2, request);
    EXPECT_NE(closed[2].find("full"), std::string::npos);
    EXPECT_LE(store.bytes(), kMaxTorchBytes);
}

TEST_F(TorchStoreTest, AReplyHasALimit) {
    send(1, set("k", std::string(8 << 20, 'v')));
    EXPECT_EQ(ask(2, op(10) + list(std::vector<std::string>(8, "k"))).size(), 8 * (8 + (8u << 20)));
    send(2, op(10) + list(std::vector<std::string>(9, "k")));
    EXPECT_NE(closed[2].find("the limit is 64 MiB"), std::string::npos) << closed[2];
}

TEST_F(TorchStoreTest, AppendingStaysWithinAValuesLimit) {
    send(1, set("k", std::string(8 << 20, 'v')));
    send(1, op(9) + s("k") + s("x"));
    EXPECT_NE(closed[1].find("more than 8 MiB"), std::string::npos) << closed[1];
}

// Whatever clients do, what is counted for them is given back when all is deleted and they are gone.
TEST_F(TorchStoreTest, NothingStaysCounted) {
    std::mt19937 random(7);
    auto key = [&] { return "k" + std::to_string(random() % 6); };
    for (int step = 0; step < 20000; ++step) {
        const TorchClient id = 1 + random() % 4;
        std::string request;
        switch (random() % 12) {
            case 0:
                request = set(key(), std::string(random() % 50, 'x'));
                break;
            case 1:
                request = op(2) + s(key()) + s("") + s("v");
                break;
            case 2:
                request = get(key());
                break;
            case 3:
                request = op(8) + s(key());
                break;
            case 4:
                request = op(9) + s(key()) + s("more");
                break;
            case 5:
                request = wait({key(), key()});
                break;
            case 6:
                request = op(14) + s(key()) + s("element");
                break;
            case 7:
                request = op(15) + s(key());
                break;
            case 8:
                request = op(12);
                break;
            case 9:
                request = op(11) + u64(2) + s(key()) + s("1") + s(key()) + s("2");
                break;
            case 10:
                request = op(1) + s(key()).substr(0, 5);
                break;  // and never the rest
            default:
                store.disconnect(id);
                store.connect(id);
                closed.erase(id);
                request = kGreeting;
        }
        send(id, request);
        if (closed.contains(id)) {
            closed.erase(id);
            store.connect(id);
            send(id, kGreeting);
        }
    }
    for (TorchClient id : {1, 2, 3, 4}) store.disconnect(id);
    store.connect(9);
    send(9, kGreeting);
    for (int i = 0; i < 6; ++i) {
        const std::string k = s("k" + std::to_string(i));
        send(9, op(8) + k);
        do {
            got.clear();
            send(9, op(15) + k);
        } while (got[9] != u64(0));
    }
    EXPECT_EQ(store.bytes(), 0u);
}

}  // namespace
}  // namespace dp
