// SPDX-License-Identifier: Apache-2.0
//
// A communicator that logs its collectives (operation_log.hpp), for `trainer --profile`: each for the time that the caller is in
// it. What asynchronous sums take besides is background_nanoseconds().
#pragma once

#include <memory>
#include <utility>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {

// The log must outlive it.
class ProfiledCommunicator final : public Communicator {
 public:
    ProfiledCommunicator(OperationLog& log, std::unique_ptr<Communicator> inner)
        : log_(log), inner_(std::move(inner)) {
        set_peer(inner_->peer());
    }

    std::string_view name() const override { return inner_->name(); }
    std::int64_t rank() const override { return inner_->rank(); }
    std::int64_t size() const override { return inner_->size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        const auto timed = log_.time(Operation::all_reduce, 0, {{&tensor, Access::update}});
        return inner_->all_reduce(tensor, reduction);
    }
    Result<void> small_all_reduce(const Tensor& tensor) override {
        const auto timed = log_.time(Operation::small_all_reduce, 0, {{&tensor, Access::update}});
        return inner_->small_all_reduce(tensor);
    }
    Result<void> all_gather(const Tensor& tensor) override {
        const auto timed = log_.time(Operation::all_gather, 0, {{&tensor, Access::update}});
        return inner_->all_gather(tensor);
    }
    Result<void> reduce_scatter(const Tensor& tensor) override {
        const auto timed = log_.time(Operation::reduce_scatter, 0, {{&tensor, Access::update}});
        return inner_->reduce_scatter(tensor);
    }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        const auto timed = log_.time(Operation::broadcast, 0, {{&tensor, Access::update}});
        return inner_->broadcast(tensor, root);
    }
    Result<void> start_all_reduce(const Tensor& tensor) override {
        const auto timed = log_.time(Operation::start_all_reduces, 0, {{&tensor, Access::rows}});
        return inner_->start_all_reduce(tensor);
    }
    Result<void> start_all_reduces(std::span<const Tensor> tensors) override {
        const auto timed = start(tensors);
        return inner_->start_all_reduces(tensors);
    }
    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        const auto timed = log_.time(Operation::send, 0, {{&tensor, Access::read}});
        return inner_->start_send(tensor, to, lane);
    }
    Result<void> wait_send(const Tensor& tensor) override {
        const auto timed = log_.time(Operation::wait_send, 0, {{&tensor, Access::rows}});
        return inner_->wait_send(tensor);
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        const auto timed = log_.time(Operation::receive, 0, {{&tensor, Access::write}});
        return inner_->receive(tensor, from, lane);
    }
    bool adds_in_order() const override { return inner_->adds_in_order(); }
    Result<void> start_adding(std::span<const Tensor> tensors, std::span<const Tensor> sums) override {
        const auto timed = start(sums);
        return inner_->start_adding(tensors, sums);
    }
    Result<void> wait_all_reduces() override {
        const auto timed = log_.time(Operation::wait_all_reduces, 0, {});
        return inner_->wait_all_reduces();
    }
    std::optional<std::int64_t> background_nanoseconds() const override {
        return inner_->background_nanoseconds();
    }
    Tensor result_of(const Tensor& tensor) override { return inner_->result_of(tensor); }
    bool survives_deaths() const override { return inner_->survives_deaths(); }
    Result<void> confirm() override { return inner_->confirm(); }
    std::optional<NodeShare> node_share() const override { return inner_->node_share(); }
    Result<void> node_barrier() override {
        const auto timed = log_.time(Operation::node_barrier, 0, {});
        return inner_->node_barrier();
    }

 private:
    OperationLog& log_;
    std::unique_ptr<Communicator> inner_;

    // The sums go on without the caller: no traffic of its own.
    OperationLog::Timed start(std::span<const Tensor> tensors) {
        static const Tensor kNone;
        const Tensor& first = tensors.empty() ? kNone : tensors.front();
        return log_.time(Operation::start_all_reduces, 0, {{&first, Access::rows}});
    }
};

}  // namespace dp::trainer
