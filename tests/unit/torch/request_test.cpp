// SPDX-License-Identifier: Apache-2.0
//
// Requests of PyTorch's TCPStore from bytes: both kinds of client, every split, every limit, garbage.
#include "torch/request.hpp"

#include <gtest/gtest.h>

#include <random>

#include "bytes.hpp"

namespace dp {
namespace {

using namespace torch_bytes;
using Op = TorchOperation;

// All requests in the bytes, given in portions of `portion` bytes; what was broken at the end, if anything.
struct Read {
    std::vector<TorchRequest> requests;
    std::string broken;
    size_t held = 0;
};
Read read_all(const std::string& bytes, size_t portion) {
    TorchReader reader;
    Read out;
    for (size_t at = 0; at < bytes.size() && reader.broken().empty();) {
        std::string_view rest = std::string_view(bytes).substr(at, portion);
        while (!rest.empty() && reader.broken().empty()) {
            const size_t taken = reader.take(rest);
            at += taken;
            rest.remove_prefix(taken);
            if (reader.complete()) out.requests.push_back(reader.request());
        }
    }
    out.broken = reader.broken();
    out.held = reader.held();
    return out;
}

struct Case {
    std::string name;
    std::string recent;  // "" where this kind of client has no such operation
    std::string old;
    TorchRequest request;
};

std::vector<Case> cases() {
    const std::string key = "default_pg/0//0";
    const std::string value("a\0b", 3);
    const std::string kv = s(key) + s(value);
    const std::string keys = list({key, "", "x"});
    const std::string pairs = u64(2) + kv + s("k2") + s("");
    return {
        {"set", op(1) + kv, op(0) + kv, {Op::set, {key}, {value}}},
        {"set of nothing", op(1) + s("") + s(""), op(0) + s("") + s(""), {Op::set, {""}, {""}}},
        {"compare_set",
         op(2) + kv + s("new"),
         op(1) + kv + s("new"),
         {Op::compare_set, {key}, {value, "new"}}},
        {"get", op(3) + s(key), op(2) + s(key), {Op::get, {key}, {}}},
        {"add", op(4) + s(key) + u64(7), op(3) + s(key) + u64(7), {Op::add, {key}, {}, 7}},
        {"subtract", op(4) + s(key) + u64(~0ULL), op(3) + s(key) + u64(~0ULL), {Op::add, {key}, {}, -1}},
        {"check", op(5) + keys, op(4) + keys, {Op::check, {key, "", "x"}, {}}},
        {"check nothing", op(5) + u64(0), op(4) + u64(0), {Op::check, {}, {}}},
        {"wait", op(6) + keys, op(5) + keys, {Op::wait, {key, "", "x"}, {}}},
        {"count_keys", op(7), op(6), {Op::count_keys, {}, {}}},
        {"watch_key", "", op(7) + s(key), {Op::watch_key, {key}, {}}},
        {"delete_key", op(8) + s(key), op(8) + s(key), {Op::delete_key, {key}, {}}},
        {"append", op(9) + kv, op(9) + kv, {Op::append, {key}, {value}}},
        {"multi_get", op(10) + keys, op(10) + keys, {Op::multi_get, {key, "", "x"}, {}}},
        {"multi_set", op(11) + pairs, op(11) + pairs, {Op::multi_set, {key, "k2"}, {value, ""}}},
        {"cancel_wait", op(12), op(12), {Op::cancel_wait, {}, {}}},
        {"ping", op(13) + u(0xfedcba98, 4), "", {Op::ping, {}, {}, 0xfedcba98}},
        {"queue_push", op(14) + kv, "", {Op::queue_push, {key}, {value}}},
        {"queue_pop", op(15) + s(key), "", {Op::queue_pop, {key}, {}}},
        {"queue_length", op(16) + s(key), "", {Op::queue_length, {key}, {}}},
        {"list_keys", op(17), "", {Op::list_keys, {}, {}}},
        {"barrier", op(18) + s(key) + u64(4), "", {Op::barrier, {key}, {}, 4}},
    };
}

TEST(TorchRequest, EveryOperationOfBothKindsOfClient) {
    for (const auto& c : cases()) {
        if (!c.recent.empty()) {
            const Read read = read_all(kGreeting + c.recent, 1 << 20);
            EXPECT_EQ(read.requests, std::vector{c.request}) << c.name << " " << read.broken;
        }
        if (!c.old.empty()) {
            const Read read = read_all(c.old, 1 << 20);
            EXPECT_EQ(read.requests, std::vector{c.request}) << c.name << " " << read.broken;
        }
    }
}

TEST(TorchRequest, BytesMayComeInAnyPortions) {
    std::string recent = kGreeting;
    std::string old;
    std::vector<TorchRequest> of_recent;
    std::vector<TorchRequest> of_old;
    for (const auto& c : cases()) {
        if (!c.recent.empty()) {
            recent += c.recent;
            of_recent.push_back(c.request);
        }
        if (!c.old.empty()) {
            old += c.old;
            of_old.push_back(c.request);
        }
    }
    for (size_t portion = 1; portion <= 64; ++portion) {
        EXPECT_EQ(read_all(recent, portion).requests, of_recent) << portion;
        EXPECT_EQ(read_all(old, portion).requests, of_old) << portion;
        EXPECT_EQ(read_all(old, portion).held, 0u);
    }
    // Split in two at every place, the operations of an old client each as its first one.
    for (const auto& c : cases())
        for (size_t at = 1; at < c.old.size(); ++at) {
            TorchReader reader;
            EXPECT_EQ(reader.take(c.old.substr(0, at)), at) << c.name;
            EXPECT_FALSE(reader.complete()) << c.name << " at " << at;
            EXPECT_EQ(reader.take(c.old.substr(at)), c.old.size() - at) << c.name;
            ASSERT_TRUE(reader.complete()) << c.name << " at " << at;
            EXPECT_EQ(reader.request(), c.request);
        }
}

TEST(TorchRequest, TakesNothingBeyondTheRequest) {
    const std::string two = op(6) + op(6);  // of an old client
    TorchReader reader;
    EXPECT_EQ(reader.take(two), 1u);
    EXPECT_EQ(reader.take(two.substr(1)), 0u);
    reader.request();
    EXPECT_EQ(reader.take(two.substr(1)), 1u);
}

TEST(TorchRequest, TheLimitsArePyTorchs) {
    struct Limit {
        std::string name, bytes, complaint;
    };
    const std::string key(8192, 'k');
    const std::vector<Limit> limits = {
        {"a key of 8 KiB", op(3) + s(key), ""},
        {"a key over 8 KiB", op(3) + u64(8193), "a key of 8193 bytes"},
        {"a key of 2^63", op(3) + u64(1ULL << 63), "a key of 9223372036854775808 bytes"},
        {"a value of 8 MiB", op(1) + s("k") + s(std::string(8 << 20, 'v')), ""},
        {"a value over 8 MiB", op(1) + s("k") + u64((8 << 20) + 1), "a value of 8388609 bytes"},
        {"128 Ki keys", op(6) + u64(128 << 10), ""},
        {"more keys", op(6) + u64((128 << 10) + 1), "131073 keys at once"},
        {"an operation beyond the last", op(19), "19, which is not an operation"},
        {"a second greeting", op(0), "0, which is not an operation"},
    };
    for (const auto& limit : limits) {
        const std::string broken = read_all(kGreeting + limit.bytes, 1 << 16).broken;
        if (limit.complaint.empty())
            EXPECT_EQ(broken, "") << limit.name;
        else
            EXPECT_NE(broken.find(limit.complaint), std::string::npos) << limit.name << ": " << broken;
    }
    EXPECT_NE(read_all(op(13), 1).broken, "");  // of an old client
    EXPECT_NE(read_all(op(0) + u64(8193), 1).broken, "");
    EXPECT_NE(read_all("GET / HTTP/1.1\r\n", 4).broken, "");
}

TEST(TorchRequest, AWholeRequestHasALimitToo) {
    std::string bytes = kGreeting + op(11) + u64(100);
    for (int i = 0; i < 10; ++i) bytes += s("k") + s(std::string(8 << 20, 'v'));
    const Read read = read_all(bytes, 1 << 16);
    EXPECT_NE(read.broken.find("more than 64 MiB"), std::string::npos) << read.broken;
    EXPECT_EQ(read.held, 0u);
    // A length alone takes no memory.
    TorchReader reader;
    reader.take(kGreeting + op(1) + s("k") + u64(8 << 20));
    EXPECT_LT(reader.held(), 100u);
}

TEST(TorchRequest, GarbageIsReadToItsEndOrToAComplaint) {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = round % 2 ? kGreeting : "";
        for (int i = 0; i < 200; ++i)
            // Mostly small numbers, so that lengths make sense and something is read.
            bytes += static_cast<char>(random() % 4 ? random() % 19 : random());
        const Read whole = read_all(bytes, bytes.size());
        const Read bytewise = read_all(bytes, 1);
        EXPECT_EQ(whole.requests, bytewise.requests);
        EXPECT_EQ(whole.broken, bytewise.broken);
    }
}

}  // namespace
}  // namespace dp
