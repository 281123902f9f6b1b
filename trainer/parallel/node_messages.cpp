// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_messages.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/awake.hpp"

namespace dp::trainer {
namespace {

// Of a bell: set once the world is broken; what it is rung by.
constexpr std::uint32_t kIsBroken = 1, kRings = 2;

std::uint64_t pages_of(std::uint64_t bytes) {
    static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

// Extends the file by allocated memory: to touch what is not would kill this rank.
Result<void> extend(int file, std::uint64_t from, std::uint64_t bytes) {
    if (TEMP_FAILURE_RETRY(fallocate(file, 0, static_cast<off_t>(from), static_cast<off_t>(bytes))) == 0)
        return {};
    return fail_with_errno(Fault::device, "out of memory for pipeline messages in shared memory: fallocate");
}

}  // namespace

NodeMessages::Mapping NodeMessages::map(int file, std::uint64_t offset, std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file,
                    static_cast<off_t>(offset));
    if (at == MAP_FAILED) return nullptr;
    return {static_cast<std::byte*>(at), [bytes](std::byte* begin) { munmap(begin, bytes); }};
}

Result<std::unique_ptr<NodeMessages>> NodeMessages::make(std::size_t ranks,
                                                         std::chrono::milliseconds timeout) {
    std::unique_ptr<NodeMessages> made(new NodeMessages(ranks, timeout));
    Fd file(memfd_create("dp-trainer-messages", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_with_errno(Fault::world, "memfd_create");
    made->end_ = pages_of(made->bytes_of_header());
    DP_TRY(extend(file.get(), 0, made->end_));
    // Truncating the file under another rank's mapping would kill that rank.
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        return fail_with_errno(Fault::world, "F_ADD_SEALS");
    made->files_.push_back(std::move(file));
    return made;
}

Result<void> NodeMessages::add_others(std::vector<Fd> files, std::size_t me) {
    files[me] = std::move(files_[0]);
    for (const Fd& file : files) {
        headers_.push_back(map(file.get(), 0, pages_of(bytes_of_header())));
        if (!headers_.back()) return fail_with_errno(Fault::world, "mmap");
    }
    files_ = std::move(files);
    me_ = me;
    mapped_.resize(ranks_ * ranks_ * 2 * kSlots);
    return {};
}

NodeMessages::Channel& NodeMessages::channel(std::size_t from, std::size_t to, Lane lane) const {
    auto* channels = reinterpret_cast<Channel*>(headers_[from].get() + sizeof(Header));
    return channels[2 * to + (lane == Lane::gradients ? 1 : 0)];
}

// Where this message is, in this process. Only sender and receiver ask, while the slot is theirs.
Result<std::byte*> NodeMessages::memory_of(std::size_t from, std::size_t to, Lane lane,
                                           std::uint64_t message) {
    const std::size_t at = message % kSlots;
    const Slot& slot = channel(from, to, lane).slots[at];
    Mapped& known = mapped_[((from * ranks_ + to) * 2 + (lane == Lane::gradients ? 1 : 0)) * kSlots + at];
    if (!known.memory || known.offset != slot.offset || known.room != slot.room) {
        known = {slot.offset, slot.room, map(files_[from].get(), slot.offset, slot.room)};
        if (!known.memory)
            return fail_with_errno(Fault::world, "cannot map the messages of a local rank: mmap");
    }
    return known.memory.get();
}

// Gives the slot as much room at the end of the file; the receiver may still have its old memory mapped, but does not read it.
Result<void> NodeMessages::enlarge(Slot& slot, std::uint64_t bytes) {
    const int file = files_[me_].get();
    const std::uint64_t room = pages_of(bytes);
    DP_TRY(extend(file, end_, room));
    if (slot.room > 0)
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(slot.offset),
                  static_cast<off_t>(slot.room));
    slot = {end_, room, 0};
    end_ += room;
    return {};
}

void NodeMessages::ring(std::size_t rank) const {
    bell(rank).fetch_add(kRings);  // may wrap
    wake_all(bell(rank));
}

// By this name in its stack --dp-hang-timeout knows that a rank waits for others.
[[gnu::noinline]] Result<void> NodeMessages::wait(const std::function<bool()>& is_there) {
    SharedWord& mine = bell(me_);
    bool was_broken = false;
    const bool ended = wait_awake(timeout_, [&](std::chrono::milliseconds slice) {
        const auto until = steady_now() + slice;
        for (;;) {
            const std::uint32_t rung = mine.load();
            if (is_there()) return true;
            // After that: a rank that has sent what is waited for may leave at once.
            was_broken = (rung & kIsBroken) != 0;
            if (was_broken) return true;
            const auto left = until - steady_now();
            if (left <= left.zero()) return false;
            wait_for_change(mine, rung, left);
        }
    });
    if (was_broken)
        return fail(Fault::world,
                    "a pipeline message through shared memory failed: another rank has died or its node is "
                    "cut off, see "
                    "the lines before this one");
    if (ended) return {};
    return fail(
        Fault::world,
        "a pipeline message through shared memory waited {} minutes for another rank of this node; `dpctl "
        "top` shows what each rank does",
        timeout_.count() / 60000);
}

Result<void> NodeMessages::send(const Tensor& tensor, std::size_t to, Lane lane) {
    Channel& there = channel(me_, to, lane);
    const std::uint64_t number = there.sent.load(std::memory_order_relaxed);
    DP_TRY(wait([&] { return number - there.taken.load() < kSlots; }));
    Slot& slot = there.slots[number % kSlots];
    const std::size_t bytes = tensor.bytes();
    if (bytes > slot.room) DP_TRY(enlarge(slot, bytes));
    if (bytes > 0) std::memcpy(DP_TRY(memory_of(me_, to, lane, number)), tensor.data<void>(), bytes);
    slot.bytes = bytes;
    there.sent.store(number + 1);
    ring(to);
    return {};
}

Result<void> NodeMessages::receive(const Tensor& tensor, std::size_t from, Lane lane) {
    Channel& there = channel(from, me_, lane);
    const std::uint64_t number = there.taken.load(std::memory_order_relaxed);
    DP_TRY(wait([&] { return there.sent.load() != number; }));
    if (const std::uint64_t bytes = there.slots[number % kSlots].bytes; bytes != tensor.bytes())
        return fail(Fault::world,
                    "a message of {} bytes where the receiver has room for {}: a bug in the trainer", bytes,
                    tensor.bytes());
    if (tensor.bytes() > 0)
        std::memcpy(tensor.data<void>(), DP_TRY(memory_of(from, me_, lane, number)), tensor.bytes());
    there.taken.store(number + 1);
    ring(from);
    return {};
}

void NodeMessages::break_off() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        bell(rank).fetch_or(kIsBroken);
        wake_all(bell(rank));
    }
}

}  // namespace dp::trainer
