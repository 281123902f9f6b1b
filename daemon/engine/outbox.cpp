// SPDX-License-Identifier: Apache-2.0
#include "engine/outbox.hpp"

#include <iterator>
#include <utility>

namespace dp {

void Outbox::send(wire::FromNode message) {
    if (broker_ == Broker::gone) return;
    flush_hellos();
    ready_.push_back(std::move(message));
}

void Outbox::batch_hello(const wire::Hellos::Rank& hello, Time now) {
    if (broker_ == Broker::gone) return;
    *hellos_.add_ranks() = hello;
    if (!hellos_at_) hellos_at_ = now + kHelloBatch;
}

void Outbox::batch_exit(wire::FromNode message, Time now) {
    if (broker_ == Broker::gone) return;
    if (hellos_at_) flush_hellos();
    exits_.push_back(std::move(message));
    if (!exits_at_) exits_at_ = now + kExitBatch;
}

void Outbox::flush_exits() {
    exits_at_.reset();
    std::move(exits_.begin(), exits_.end(), std::back_inserter(ready_));
    exits_.clear();
}

void Outbox::flush_hellos() {
    flush_exits();
    if (!hellos_at_) return;
    hellos_at_.reset();
    ready_.emplace_back().mutable_hellos()->Swap(&hellos_);
    hellos_.Clear();
}

void Outbox::open(wire::FromNode first) {
    broker_ = Broker::there;
    ready_.insert(ready_.begin(), std::move(first));
}

void Outbox::close() {
    broker_ = Broker::gone;
    for (auto* messages : {&ready_, &exits_}) messages->clear();
    hellos_.Clear();
    exits_at_.reset();
    hellos_at_.reset();
}

void Outbox::expire(Time now) {
    if (exits_at_ && now >= *exits_at_) flush_exits();
    if (hellos_at_ && now >= *hellos_at_) flush_hellos();
}

std::vector<wire::FromNode> Outbox::take() {
    return broker_ == Broker::there ? std::exchange(ready_, {}) : std::vector<wire::FromNode>();
}

}  // namespace dp
