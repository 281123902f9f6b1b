// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of a node, in memory that they share. Used by message_communicator.cpp.
//
// Each rank has an unnamed file (memfd), which the others map. In it are, for each other rank and lane, slots for two messages:
// the sender copies its tensor to one and goes on, the receiver copies it from there. A sender that is further ahead waits. A slot
// is as large as the largest message it has had. The kernel frees all of it with the last process. No locks: a rank may be killed
// at any instruction.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/communicator.hpp"
#include "trainer/parallel/shared_word.hpp"

namespace dp::trainer {

class NodeMessages {
 public:
    // How many messages of a lane may be on their way to a rank.
    static constexpr std::size_t kSlots = 2;

    // Of a node with so many ranks. `timeout` is that of each wait, without the time in which this rank is stopped.
    static Result<std::unique_ptr<NodeMessages>> make(std::size_t ranks, std::chrono::milliseconds timeout);

    // To be sent to the other ranks.
    int file() const { return files_[0].get(); }
    // The other ranks' files by local rank; the entry `me` is empty. Call once.
    Result<void> add_others(std::vector<Fd> files, std::size_t me);

    // Between local ranks, of tensors in host memory; from one thread. The tensor may be changed afterwards.
    Result<void> send(const Tensor& tensor, std::size_t to, Lane lane);
    // What was sent before a rank was gone still arrives.
    Result<void> receive(const Tensor& tensor, std::size_t from, Lane lane);

    // Ends all waits of this and the other ranks, permanently. From any thread.
    void break_off();

 private:
    // A part of a file in this process's memory, as long as this lives; null if it could not be mapped.
    using Mapping = std::shared_ptr<std::byte>;
    static Mapping map(int file, std::uint64_t offset, std::size_t bytes);

    // ---- in shared memory, initially zero
    struct Slot {
        std::uint64_t offset, room;  // in the sender's file
        std::uint64_t bytes;         // of the message
    };
    // From the rank whose file it is in to another one. Message n is at slots[n % kSlots].
    struct Channel {
        alignas(64) std::atomic<std::uint64_t> sent;  // messages: written by the sender, after their slots
        std::array<Slot, kSlots> slots;
        alignas(64) std::atomic<std::uint64_t> taken;  // written by the receiver
    };
    // The beginning of each rank's file; behind it its channels, by local rank and lane.
    struct alignas(64) Header {
        SharedWord bell;  // changes with each message for this rank, and each of its own that is taken
    };

    // What this process has mapped of a slot.
    struct Mapped {
        std::uint64_t offset = 0, room = 0;
        Mapping memory;
    };

    std::size_t ranks_, me_ = 0;
    std::chrono::milliseconds timeout_;
    std::vector<Fd> files_;         // by local rank, once there are others
    std::vector<Mapping> headers_;  // with the channels
    std::uint64_t end_ = 0;         // of this rank's file
    std::vector<Mapped> mapped_;    // by sender, receiver, lane and slot

    NodeMessages(std::size_t ranks, std::chrono::milliseconds timeout) : ranks_(ranks), timeout_(timeout) {}
    std::size_t bytes_of_header() const { return sizeof(Header) + 2 * ranks_ * sizeof(Channel); }
    SharedWord& bell(std::size_t rank) const { return reinterpret_cast<Header*>(headers_[rank].get())->bell; }
    Channel& channel(std::size_t from, std::size_t to, Lane lane) const;
    Result<std::byte*> memory_of(std::size_t from, std::size_t to, Lane lane, std::uint64_t message);
    Result<void> enlarge(Slot& slot, std::uint64_t bytes);
    void ring(std::size_t rank) const;
    Result<void> wait(const std::function<bool()>& is_there);
};

}  // namespace dp::trainer
