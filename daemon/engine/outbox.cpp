// SPDX-License-Identifier: Apache-2.0
#include "engine/outbox.hpp"

#include <iterator>
#include <utility>

namespace dp {

void Outbox::send(wire::FromNode message) {
    if (broker_ == Broker::gone) return;
    messages_.push_back(std::move(message));
    flush();
}

void Outbox::batch_hello(const wire::Hellos::Rank& hello, Time now) {
    if (broker_ == Broker::gone) return;
    if (messages_.size() == ready_ || !messages_.back().has_hellos()) messages_.emplace_back();
    *messages_.back().mutable_hellos()->add_ranks() = hello;
    flush_at_ = earlier(flush_at_, now + kHelloBatch);
}

void Outbox::batch_exit(wire::FromNode message, Time now) {
    if (broker_ == Broker::gone) return;
    messages_.push_back(std::move(message));
    flush_at_ = earlier(flush_at_, now + kExitBatch);
}

void Outbox::flush() {
    ready_ = messages_.size();
    flush_at_.reset();
}

void Outbox::open(wire::FromNode first) {
    broker_ = Broker::there;
    messages_.insert(messages_.begin(), std::move(first));
    ++ready_;
}

void Outbox::close() {
    broker_ = Broker::gone;
    messages_.clear();
    flush();
}

void Outbox::expire(Time now) {
    if (flush_at_ && now >= *flush_at_) flush();
}

std::vector<wire::FromNode> Outbox::take() {
    if (broker_ != Broker::there) return {};
    const auto end = messages_.begin() + static_cast<ptrdiff_t>(std::exchange(ready_, 0));
    std::vector<wire::FromNode> out(std::move_iterator(messages_.begin()), std::move_iterator(end));
    messages_.erase(messages_.begin(), end);
    return out;
}

}  // namespace dp
