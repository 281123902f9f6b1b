// SPDX-License-Identifier: Apache-2.0
//
// Collectives of GPU tensors through host memory, for ranks that share a GPU, which NCCL
// refuses. parallel/world.cpp makes it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class HostStaged final : public Communicator {
 public:
    // Over a communicator for tensors in host memory. The device must outlive it.
    HostStaged(std::unique_ptr<Communicator> between_hosts, Device& device)
        : between_hosts_(std::move(between_hosts)), device_(device) {}

    std::string_view name() const override { return between_hosts_->name(); }
    std::int64_t rank() const override { return between_hosts_->rank(); }
    std::int64_t size() const override { return between_hosts_->size(); }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        const Tensor host = staging_for(tensor);
        device_.download(tensor, staging_.data());
        DP_TRY(device_.status());
        DP_TRY(between_hosts_->all_reduce(host, reduction));
        device_.upload(staging_.data(), tensor);
        return device_.status();
    }

    Result<void> all_gather(const Tensor& tensor) override {
        const Tensor host = staging_for(tensor);
        const Shard mine = shard_of(tensor.elements(), rank(), size());
        const auto before = static_cast<std::size_t>(mine.first) * size_of(tensor.type());
        device_.download(tensor.view(mine.first, {mine.count}), staging_.data() + before);
        DP_TRY(device_.status());
        DP_TRY(between_hosts_->all_gather(host));
        device_.upload(staging_.data(), tensor);
        return device_.status();
    }

    Result<void> reduce_scatter(const Tensor& tensor) override {
        const Tensor host = staging_for(tensor);
        device_.download(tensor, staging_.data());
        DP_TRY(device_.status());
        DP_TRY(between_hosts_->reduce_scatter(host));
        const Shard mine = shard_of(tensor.elements(), rank(), size());
        const auto before = static_cast<std::size_t>(mine.first) * size_of(tensor.type());
        device_.upload(staging_.data() + before, tensor.view(mine.first, {mine.count}));
        return device_.status();
    }

    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        const Tensor host = staging_for(tensor);
        if (root == rank()) device_.download(tensor, staging_.data());
        DP_TRY(device_.status());
        DP_TRY(between_hosts_->broadcast(host, root));
        if (root != rank()) device_.upload(staging_.data(), tensor);
        return device_.status();
    }

    // A message lies in memory of its own until it is sent.
    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        const auto memory = std::make_shared<std::vector<std::byte>>(tensor.bytes());
        device_.download(tensor, memory->data());
        DP_TRY(device_.status());
        const Tensor host(std::shared_ptr<void>(memory, memory->data()), tensor.type(), tensor.shape());
        sent_.push_back({tensor.data<void>(), host});
        return between_hosts_->start_send(host, to, lane);
    }
    Result<void> wait_send(const Tensor& tensor) override {
        for (auto one = sent_.begin(); one != sent_.end();) {
            if (one->from != tensor.data<void>()) {
                ++one;
                continue;
            }
            DP_TRY(between_hosts_->wait_send(one->host));
            one = sent_.erase(one);
        }
        return {};
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        const Tensor host = staging_for(tensor);
        DP_TRY(between_hosts_->receive(host, from, lane));
        device_.upload(staging_.data(), tensor);
        return device_.status();
    }

 private:
    struct Sent {
        const void* from;  // on the device
        Tensor host;
    };

    std::unique_ptr<Communicator> between_hosts_;
    Device& device_;
    std::vector<std::byte> staging_;
    std::vector<Sent> sent_;  // that nobody has waited for

    // The staging memory, at least as large as the tensor, in the tensor's shape.
    Tensor staging_for(const Tensor& tensor) {
        if (staging_.size() < tensor.bytes()) staging_.resize(tensor.bytes());
        const std::shared_ptr<void> memory(staging_.data(), [](void*) {});
        return {memory, tensor.type(), tensor.shape()};
    }
};

}  // namespace dp::trainer
