// SPDX-License-Identifier: Apache-2.0
#include "engine/outbox.hpp"

#include <iterator>
#include <utility>

namespace dp {

void Outbox::send(wire::FromNode message) {
    if (broker_ == Broker::gone) return;
    send_hellos();
    ready_.push_back(std::move(message));
}

void Outbox::send_hello(const wire::Hellos::Rank& hello, Time now) {
    if (broker_ == Broker::gone) return;
    *hellos_.add_ranks() = hello;
    if (!hellos_at_) hellos_at_ = now + kHellosTogether;
}

void Outbox::send_end(wire::FromNode message, Time now) {
    if (broker_ == Broker::gone) return;
    if (hellos_at_) send_hellos();
    ends_.push_back(std::move(message));
    if (!ends_at_) ends_at_ = now + kGoodNews;
}

void Outbox::send_ends() {
    ends_at_.reset();
    std::move(ends_.begin(), ends_.end(), std::back_inserter(ready_));
    ends_.clear();
}

void Outbox::send_hellos() {
    send_ends();
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
    for (auto* messages : {&ready_, &ends_}) messages->clear();
    hellos_.Clear();
    ends_at_.reset();
    hellos_at_.reset();
}

void Outbox::expire(Time now) {
    if (ends_at_ && now >= *ends_at_) send_ends();
    if (hellos_at_ && now >= *hellos_at_) send_hellos();
}

std::vector<wire::FromNode> Outbox::take() {
    return broker_ == Broker::there ? std::exchange(ready_, {}) : std::vector<wire::FromNode>();
}

}  // namespace dp
