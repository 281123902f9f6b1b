// SPDX-License-Identifier: Apache-2.0
//
// Memory that the ranks of a node share. Each rank has an unnamed file (memfd) that grows as it allocates,
// and maps the others' files to reach what they have at the same place. What the node has only once is in the
// first rank's file. The kernel frees all of it with the last process. Used by node_communicator.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.hpp"
#include "trainer/parallel/node_barrier.hpp"

namespace dp::trainer {

class NodeMemory {
    // A part of a file in this process's memory, as long as this lives; null if it could not be mapped.
    using Mapping = std::shared_ptr<std::byte>;
    static Mapping map(int file, std::size_t offset, std::size_t bytes);

    // One allocation, in the memory of all ranks.
    struct Block {
        std::uint64_t offset;  // in the file
        std::size_t bytes;
        std::shared_ptr<Fd> file;  // this rank's
        Mapping mine;
        std::vector<Mapping> others;  // mapped when they are first asked for
        ~Block();
    };

 public:
    // Without any allocation yet.
    static Result<std::shared_ptr<NodeMemory>> make();

    // To be sent to the other ranks.
    int file() const { return files_[0]->get(); }
    // The other ranks' files by local rank; the place `me` is empty. Call once.
    Result<void> add_others(std::vector<Fd> files, std::size_t me);

    std::size_t ranks() const { return files_.size(); }
    std::size_t me() const { return me_; }

    // The node's, in the memory of the first rank.
    SharedBarrier& barrier() { return header(0).barrier; }

    // For all-reduces of what is elsewhere: a barrier of their own, and two places per rank for these bytes.
    static constexpr std::size_t kRoom = std::size_t{64} << 10;
    SharedBarrier& room_barrier() { return header(0).room_barrier; }
    template <typename Number>
    Number* room(std::size_t rank, unsigned turn) const {
        return reinterpret_cast<Number*>(header(rank).room[turn]);
    }

    // Zeroed memory; null if there is none. For equal offsets, all ranks allocate the same in the same order.
    std::shared_ptr<void> allocate(std::size_t bytes);

    // The same for one piece of memory that all ranks share. Each touches the pages of its part first: they
    // are then near its CPU. They stay until the last process ends: nobody knows who needs them last.
    std::shared_ptr<void> allocate_of_node(std::size_t bytes);

    // A part of one allocation; keeps it alive.
    struct Part {
        std::shared_ptr<Block> block;
        std::uint64_t first, bytes;  // in the block

        std::int64_t numbers() const { return static_cast<std::int64_t>(bytes / sizeof(float)); }
        std::uint64_t offset() const { return block->offset + first; }
    };
    // The part with the bytes at this address; nullopt for memory from elsewhere.
    std::optional<Part> find(const std::byte* at, std::size_t bytes) const;

    // What a rank is about to reduce. Written before a barrier; between it and the next one, everybody can
    // check that all mean the same.
    void announce(const Part& part);
    bool all_announced(const Part& part) const;

    // The same part in each rank's memory, by local rank. Once all have announced it, and from one thread.
    Result<std::vector<float*>> of_all(const Part& part);
    // The part in the first rank's memory, which of_all() has found.
    std::shared_ptr<float> of_first(const Part& part) const;

 private:
    // The beginning of each rank's file.
    struct Header {
        SharedBarrier barrier, room_barrier;
        // Double-buffered: a rank that is ahead may announce the next one while others read this one.
        struct {
            std::atomic<std::uint64_t> offset, bytes;
        } announced[2];
        alignas(64) std::byte room[2][kRoom];
    };

    std::vector<std::shared_ptr<Fd>> files_;  // by local rank, once there are others
    std::vector<Mapping> headers_;
    std::size_t me_ = 0;
    std::uint64_t end_ = 0;  // of the files, once all ranks have allocated as much
    unsigned turn_ = 0;      // which of `announced` was written last
    std::vector<std::weak_ptr<Block>> blocks_;

    NodeMemory() = default;
    Header& header(std::size_t rank) const { return *reinterpret_cast<Header*>(headers_[rank].get()); }
};

}  // namespace dp::trainer
