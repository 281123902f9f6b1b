// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/message_communicator.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/parallel/node_messages.hpp"

namespace dp::trainer {
namespace {

class MessageCommunicator final : public Communicator {
 public:
    MessageCommunicator(std::unique_ptr<Communicator> world, std::vector<std::uint32_t> local_ranks,
                        std::unique_ptr<NodeMessages> messages, PeerSockets sockets)
        : world_(std::move(world)),
          local_ranks_(std::move(local_ranks)),
          messages_(std::move(messages)),
          sockets_(std::move(sockets)) {
        set_peer(world_->peer());
    }
    ~MessageCommunicator() override { messages_->break_off(); }

    // All waits end with an error once a rank of the node is gone or the world is ended.
    Result<void> start(const NodeSetting& setting) {
        if (setting.on_end) ending_ = setting.on_end([this] { messages_->break_off(); });
        return sockets_.watch([this] { messages_->break_off(); });
    }

    std::string_view name() const override { return "node-memory"; }
    std::int64_t rank() const override { return world_->rank(); }
    std::int64_t size() const override { return world_->size(); }

    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        const auto local = local_rank_of(to);
        return local ? messages_->send(tensor, *local, lane) : world_->start_send(tensor, to, lane);
    }
    Result<void> wait_send(const Tensor& tensor) override {
        return world_->wait_send(tensor);  // on this node it is on its way at once
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        const auto local = local_rank_of(from);
        return local ? messages_->receive(tensor, *local, lane) : world_->receive(tensor, from, lane);
    }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        return world_->all_reduce(tensor, reduction);
    }
    Result<void> all_gather(const Tensor& tensor) override { return world_->all_gather(tensor); }
    Result<void> reduce_scatter(const Tensor& tensor) override { return world_->reduce_scatter(tensor); }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        return world_->broadcast(tensor, root);
    }
    Result<void> start_all_reduce(const Tensor& tensor) override { return world_->start_all_reduce(tensor); }
    bool adds_in_order() const override { return world_->adds_in_order(); }
    Result<void> start_adding(std::span<const Tensor> tensors, std::span<const Tensor> sums) override {
        return world_->start_adding(tensors, sums);
    }
    Result<void> wait_all_reduces() override { return world_->wait_all_reduces(); }
    std::optional<std::int64_t> background_nanoseconds() const override {
        return world_->background_nanoseconds();
    }

 private:
    std::unique_ptr<Communicator> world_;
    std::vector<std::uint32_t> local_ranks_;  // of this node, ascending
    std::unique_ptr<NodeMessages> messages_;
    // Destroyed before what they use, the last one first.
    PeerSockets sockets_;
    std::shared_ptr<void> ending_;

    std::optional<std::size_t> local_rank_of(std::int64_t rank) const {
        const auto found = std::ranges::find(local_ranks_, static_cast<std::uint32_t>(rank));
        if (found == local_ranks_.end()) return std::nullopt;
        return static_cast<std::size_t>(found - local_ranks_.begin());
    }
};

}  // namespace

Result<SharedNodes> share_messages(std::unique_ptr<Communicator> world, const NodeSetting& setting) {
    std::unique_ptr<NodeMessages> messages;
    const OwnFile own{
        [&](const NodePlace& place) -> Result<int> {
            messages = DP_TRY(NodeMessages::make(place.local_ranks.size(), setting.timeout));
            return messages->file();
        },
        [&](std::vector<Fd> others, std::size_t me) { return messages->add_others(std::move(others), me); }};
    auto files = DP_TRY(exchange_files(setting, world->rank(), own));
    if (!files.are_shared()) return SharedNodes{std::move(world), std::move(files.why_not)};
    auto made = std::make_unique<MessageCommunicator>(std::move(world), std::move(files.place.local_ranks),
                                                      std::move(messages), std::move(*files.sockets));
    DP_TRY(made->start(setting));
    return SharedNodes{std::move(made), ""};
}

}  // namespace dp::trainer
