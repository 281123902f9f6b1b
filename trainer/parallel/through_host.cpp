// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/through_host.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace dp::trainer {
namespace {

class ThroughHost final : public Communicator {
 public:
    ThroughHost(std::unique_ptr<Communicator> between_hosts, Device& device)
        : between_hosts_(std::move(between_hosts)), device_(device) {}

    std::string_view name() const override { return between_hosts_->name(); }
    std::int64_t rank() const override { return between_hosts_->rank(); }
    std::int64_t size() const override { return between_hosts_->size(); }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (staging_.size() < tensor.bytes()) staging_.resize(tensor.bytes());
        device_.download(tensor, staging_.data());
        if (auto sound = device_.status(); !sound) return sound;
        const std::shared_ptr<void> memory(staging_.data(), [](void*) {});
        if (auto done = between_hosts_->all_reduce(Tensor(memory, tensor.type(), tensor.shape()), reduction);
            !done)
            return done;
        device_.upload(staging_.data(), tensor);
        return device_.status();
    }

 private:
    std::unique_ptr<Communicator> between_hosts_;
    Device& device_;
    std::vector<std::byte> staging_;
};

}  // namespace

std::unique_ptr<Communicator> make_through_host(std::unique_ptr<Communicator> between_hosts, Device& device) {
    return std::make_unique<ThroughHost>(std::move(between_hosts), device);
}

}  // namespace dp::trainer
