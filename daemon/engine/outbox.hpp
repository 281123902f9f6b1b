// SPDX-License-Identifier: Apache-2.0
//
// A node's messages to the broker, in order; all wait for it. Hellos and harmless ends (goodbyes, exits with
// code 0) wait for each other for a moment, or for anything else. Pure; the node's engine owns it.
#pragma once

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// The ranks of a node begin and end together: this long they wait for each other.
inline constexpr Time kHelloBatch{20};
inline constexpr Time kExitBatch{50};

class Outbox {
 public:
    // `keeps_news`: for the node's record, which goes on where no broker listens.
    explicit Outbox(bool keeps_news = false) : keeps_news_(keeps_news) {}

    void send(wire::FromNode message) {
        if (keeps_news_ && message.has_rank()) news_.push_back(message);
        if (broker_ == Broker::gone) return;
        messages_.push_back(std::move(message));
        flush();
    }
    void batch_hello(const wire::Hellos::Rank& hello, Time now) {
        if (keeps_news_) *news_.emplace_back().mutable_hellos()->add_ranks() = hello;
        if (broker_ == Broker::gone) return;
        if (messages_.size() == ready_ || !messages_.back().has_hellos()) messages_.emplace_back();
        *messages_.back().mutable_hellos()->add_ranks() = hello;
        flush_at_ = earlier(flush_at_, now + kHelloBatch);
    }
    void batch_exit(wire::FromNode message, Time now) {
        if (keeps_news_) news_.push_back(message);
        if (broker_ == Broker::gone) return;
        messages_.push_back(std::move(message));
        flush_at_ = earlier(flush_at_, now + kExitBatch);
    }
    // Nothing so far waits any longer.
    void flush() {
        ready_ = messages_.size();
        flush_at_.reset();
    }

    // The broker is connected; `first` is sent first.
    void open(wire::FromNode first) {
        broker_ = Broker::there;
        messages_.insert(messages_.begin(), std::move(first));
        ++ready_;
    }
    // Another broker is awaited.
    void reopen() {
        close();
        broker_ = Broker::awaited;
    }
    // The broker is gone.
    void close() {
        broker_ = Broker::gone;
        messages_.clear();
        flush();
    }

    // What was said of ranks since the last time, sent or not.
    std::vector<wire::FromNode> take_news() { return std::exchange(news_, {}); }

    void expire(Time now) {
        if (flush_at_ && now >= *flush_at_) flush();
    }
    std::optional<Time> next_deadline() const { return flush_at_; }
    // The messages to send now; none before the broker is connected.
    std::vector<wire::FromNode> take() {
        if (broker_ != Broker::there) return {};
        const auto end = messages_.begin() + static_cast<ptrdiff_t>(std::exchange(ready_, 0));
        std::vector<wire::FromNode> out(std::move_iterator(messages_.begin()), std::move_iterator(end));
        messages_.erase(messages_.begin(), end);
        return out;
    }

 private:
    bool keeps_news_;
    std::vector<wire::FromNode> news_;
    enum class Broker { awaited, there, gone } broker_ = Broker::awaited;
    std::vector<wire::FromNode> messages_;
    size_t ready_ = 0;              // how many of them, from the first on, wait for nothing but the broker
    std::optional<Time> flush_at_;  // set while there are others
};

}  // namespace dp
