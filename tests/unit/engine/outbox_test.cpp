// SPDX-License-Identifier: Apache-2.0
#include "engine/outbox.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

wire::FromNode started(uint32_t rank) {
    wire::FromNode message;
    message.mutable_rank()->set_rank(rank);
    message.mutable_rank()->set_started(1);
    return message;
}
wire::FromNode goodbye(uint32_t rank) {
    wire::FromNode message;
    message.mutable_rank()->set_rank(rank);
    message.mutable_rank()->set_goodbye(true);
    return message;
}
wire::Hellos::Rank hello(uint32_t rank) {
    wire::Hellos::Rank said;
    said.set_rank(rank);
    return said;
}
wire::FromNode join() {
    wire::FromNode message;
    message.mutable_join();
    return message;
}

// "join started1 hellos1,2 goodbye3"
std::string said(Outbox& outbox) {
    std::string out;
    for (const auto& message : outbox.take()) {
        if (!out.empty()) out += ' ';
        if (message.has_join()) out += "join";
        if (message.rank().has_started()) out += "started" + std::to_string(message.rank().rank());
        if (message.rank().has_goodbye()) out += "goodbye" + std::to_string(message.rank().rank());
        if (message.has_hellos()) out += "hellos";
        for (const auto& one : message.hellos().ranks()) out += "," + std::to_string(one.rank());
    }
    return out;
}

TEST(Outbox, AllWaitsForTheBrokerAndComesAfterTheFirstWord) {
    Outbox outbox;
    outbox.send(started(1));
    EXPECT_EQ(said(outbox), "");
    outbox.open(join());
    outbox.send(started(2));
    EXPECT_EQ(said(outbox), "join started1 started2");
    outbox.close();
    outbox.send(started(3));
    outbox.batch_hello(hello(3), Time(0));
    outbox.batch_exit(goodbye(3), Time(0));
    EXPECT_FALSE(outbox.next_deadline());
    outbox.expire(Time(1000));
    EXPECT_EQ(said(outbox), "");
}

TEST(Outbox, HellosAndEndsWaitForEachOther) {
    Outbox outbox;
    outbox.open(join());
    EXPECT_EQ(said(outbox), "join");
    outbox.batch_hello(hello(1), Time(100));
    outbox.batch_hello(hello(2), Time(110));
    EXPECT_EQ(outbox.next_deadline(), Time(100) + kHelloBatch);
    EXPECT_EQ(said(outbox), "");
    outbox.expire(Time(100) + kHelloBatch);
    EXPECT_EQ(said(outbox), "hellos,1,2");
    outbox.batch_exit(goodbye(1), Time(200));
    outbox.batch_exit(goodbye(2), Time(210));
    EXPECT_EQ(outbox.next_deadline(), Time(200) + kExitBatch);
    outbox.expire(Time(200) + kExitBatch);
    EXPECT_EQ(said(outbox), "goodbye1 goodbye2");
}

TEST(Outbox, WhatCannotWaitTakesTheOthersAlongInTheirOrder) {
    Outbox outbox;
    outbox.open(join());
    outbox.batch_hello(hello(1), Time(0));
    outbox.batch_exit(goodbye(1), Time(1));
    outbox.batch_hello(hello(2), Time(2));
    outbox.send(started(3));
    EXPECT_EQ(said(outbox), "join hellos,1 goodbye1 hellos,2 started3");
    outbox.batch_exit(goodbye(2), Time(3));
    outbox.batch_hello(hello(1), Time(4));
    outbox.flush();
    EXPECT_EQ(said(outbox), "goodbye2 hellos,1");
    EXPECT_FALSE(outbox.next_deadline());
}

}  // namespace
}  // namespace dp
