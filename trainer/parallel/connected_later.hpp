// SPDX-License-Identifier: Apache-2.0
//
// A communicator that connects when it is first used: a mesh of many ranks has a connection between any two, and
// where the ranks of a node share memory nobody may ever need it. parallel/world.cpp makes it.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "trainer/base/communicator.hpp"

namespace dp::trainer {

class ConnectedLater final : public Communicator {
 public:
    using Connect = std::function<Result<std::unique_ptr<Communicator>>()>;

    // `name`: of what `connect` makes. Every rank uses it first in the same call.
    ConnectedLater(std::string_view name, std::int64_t rank, std::int64_t size, Connect connect)
        : name_(name), rank_(rank), size_(size), connect_(std::move(connect)) {}

    std::string_view name() const override { return name_; }
    std::int64_t rank() const override { return rank_; }
    std::int64_t size() const override { return size_; }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        DP_TRY(connect());
        return connected_->all_reduce(tensor, reduction);
    }
    Result<void> all_gather(const Tensor& tensor) override {
        DP_TRY(connect());
        return connected_->all_gather(tensor);
    }
    Result<void> reduce_scatter(const Tensor& tensor) override {
        DP_TRY(connect());
        return connected_->reduce_scatter(tensor);
    }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        DP_TRY(connect());
        return connected_->broadcast(tensor, root);
    }
    Result<void> start_all_reduce(const Tensor& tensor) override {
        DP_TRY(connect());
        return connected_->start_all_reduce(tensor);
    }
    bool adds_in_order() const override { return true; }  // so does Gloo, and no other is connected later
    Result<void> start_adding(std::span<const Tensor> tensors, std::span<const Tensor> sums) override {
        DP_TRY(connect());
        return connected_->start_adding(tensors, sums);
    }
    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        DP_TRY(connect());
        return connected_->start_send(tensor, to, lane);
    }
    Result<void> wait_send(const Tensor& tensor) override {
        return connected_ ? connected_->wait_send(tensor) : Result<void>();
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        DP_TRY(connect());
        return connected_->receive(tensor, from, lane);
    }
    Result<void> wait_all_reduces() override {
        return connected_ ? connected_->wait_all_reduces() : Result<void>();
    }

 private:
    const std::string_view name_;
    const std::int64_t rank_, size_;
    const Connect connect_;
    std::unique_ptr<Communicator> connected_;

    Result<void> connect() {
        if (!connected_) connected_ = DP_TRY(connect_());
        return {};
    }
};

}  // namespace dp::trainer
