// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "trainer/base/partition.hpp"

namespace dp::trainer {
namespace {

std::size_t page_size() {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return page;
}

std::size_t whole_pages(std::size_t bytes) {
    const std::size_t page = page_size();
    return std::max<std::size_t>((bytes + page - 1) / page, 1) * page;
}

// Extends the file by allocated memory.
bool grow(int file, std::uint64_t from, std::size_t bytes) {
    return TEMP_FAILURE_RETRY(fallocate(file, 0, static_cast<off_t>(from), static_cast<off_t>(bytes))) == 0;
}

}  // namespace

NodeMemory::Mapping NodeMemory::map(int file, std::size_t offset, std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return nullptr;
    return {static_cast<std::byte*>(at), [bytes](std::byte* begin) { munmap(begin, bytes); }};
}

// Others may keep the file open: frees its memory now.
NodeMemory::Block::~Block() {
    fallocate(file->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
}

Result<std::shared_ptr<NodeMemory>> NodeMemory::make() {
    Fd file(memfd_create("dp-trainer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_with_errno(Fault::world, "memfd_create");
    std::shared_ptr<NodeMemory> made(new NodeMemory);
    made->end_ = whole_pages(sizeof(Header));
    if (!grow(file.get(), 0, made->end_)) return fail_with_errno(Fault::world, "fallocate");
    // Truncating the file under another rank's mapping would kill that rank.
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        return fail_with_errno(Fault::world, "F_ADD_SEALS");
    made->files_.push_back(std::make_shared<Fd>(std::move(file)));
    return made;
}

Result<void> NodeMemory::add_others(std::vector<Fd> files, std::size_t me) {
    std::vector<std::shared_ptr<Fd>> all;
    for (Fd& file : files) {
        all.push_back(all.size() == me ? files_[0] : std::make_shared<Fd>(std::move(file)));
        headers_.push_back(map(all.back()->get(), 0, whole_pages(sizeof(Header))));
        if (!headers_.back()) return fail_with_errno(Fault::world, "mmap");
    }
    files_ = std::move(all);
    me_ = me;
    return {};
}

std::shared_ptr<void> NodeMemory::allocate(std::size_t bytes) {
    const std::size_t pages = whole_pages(bytes);
    const auto& file = files_[me_];
    if (!grow(file->get(), end_, pages)) return nullptr;
    auto mine = map(file->get(), end_, pages);
    if (!mine) return nullptr;
    const std::shared_ptr<Block> block(
        new Block{end_, pages, file, std::move(mine), std::vector<Mapping>(files_.size())});
    end_ += pages;
    blocks_.push_back(block);
    return {block, block->mine.get()};
}

std::shared_ptr<void> NodeMemory::allocate_of_node(std::size_t bytes) {
    const int file = files_[0]->get();
    const std::size_t page = page_size(), all = whole_pages(bytes);
    const std::uint64_t begin = std::exchange(end_, end_ + all);
    const Shard mine = shard_of(static_cast<std::int64_t>(all / page), static_cast<std::int64_t>(me_),
                                static_cast<std::int64_t>(files_.size()));
    // Allocating the last page makes the file as long as the mapping, whatever the others have done yet.
    if (!grow(file, begin + all - page, page)) return nullptr;
    if (mine.count > 0 && !grow(file, begin + static_cast<std::size_t>(mine.first) * page,
                                static_cast<std::size_t>(mine.count) * page))
        return nullptr;
    return map(file, begin, all);
}

std::optional<NodeMemory::Part> NodeMemory::find(const std::byte* at, std::size_t bytes) const {
    for (const auto& known : blocks_) {
        auto block = known.lock();
        if (!block) continue;
        const std::byte* begin = block->mine.get();
        if (at >= begin && at + bytes <= begin + block->bytes)
            return Part{std::move(block), static_cast<std::uint64_t>(at - begin), bytes};
    }
    return std::nullopt;
}

void NodeMemory::announce(const Part& part) {
    turn_ ^= 1U;
    auto& mine = header(me_).announced[turn_];
    mine.offset.store(part.offset(), std::memory_order_relaxed);
    mine.bytes.store(part.bytes, std::memory_order_relaxed);
}

bool NodeMemory::all_announced(const Part& part) const {
    for (std::size_t rank = 0; rank < headers_.size(); ++rank) {
        const auto& of = header(rank).announced[turn_];
        if (of.offset.load(std::memory_order_relaxed) != part.offset() ||
            of.bytes.load(std::memory_order_relaxed) != part.bytes)
            return false;
    }
    return true;
}

Result<std::vector<float*>> NodeMemory::of_all(const Part& part) {
    Block& block = *part.block;
    std::vector<float*> found;
    for (std::size_t rank = 0; rank < files_.size(); ++rank) {
        Mapping& memory = rank == me_ ? block.mine : block.others[rank];
        if (!memory) memory = map(files_[rank]->get(), block.offset, block.bytes);
        if (!memory) return fail_with_errno(Fault::world, "cannot map the gradients of a local rank");
        found.push_back(reinterpret_cast<float*>(memory.get() + part.first));
    }
    return found;
}

std::shared_ptr<float> NodeMemory::of_first(const Part& part) const {
    const Mapping& memory = me_ == 0 ? part.block->mine : part.block->others[0];
    return {part.block, reinterpret_cast<float*>(memory.get() + part.first)};
}

}  // namespace dp::trainer
