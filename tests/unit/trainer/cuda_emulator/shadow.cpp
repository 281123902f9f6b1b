// SPDX-License-Identifier: Apache-2.0
//
// The shadow: what it keeps and decides. instrumentation.cpp has the functions that the compiler calls.
#include "shadow.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accesses.hpp"
#include "blocks.hpp"
#include "progress.hpp"
#include "releases.hpp"

namespace dp::cuda_emulator {

namespace {

constexpr std::size_t kBytesOfCell = 4;
// Shared variables lie that far apart, or a multiple of it (device_code.hpp).
constexpr std::size_t kApart = 65536;

struct Cells {
    Cell* first = nullptr;
    std::size_t bytes = 0;

    explicit Cells(std::size_t of_memory) : bytes(of_memory / kBytesOfCell * sizeof(Cell)) {
        void* const memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) refuse("no memory for the shadow");
        first = static_cast<Cell*>(memory);
    }
    ~Cells() { munmap(first, bytes); }
    Cells(const Cells&) = delete;
    Cells& operator=(const Cells&) = delete;
};

// Made at the first access, as few allocations of a process that tests something else are looked at.
struct Allocation {
    const char *place, *pages, *pages_end;
    const char *part, *part_end;  // what of it may be accessed
    bool is_whole;                // whether that is all of it
    std::unique_ptr<Cells> cells;
};

struct Region {
    const char *first = nullptr, *end = nullptr;
    Cell* cells = nullptr;
};

std::mutex allocations_mutex;
// By the end of the pages.
std::map<const char*, Allocation>& allocations() {
    static auto* all = new std::map<const char*, Allocation>;
    return *all;
}

struct Shadow {
    const char *stacks = nullptr, *stacks_end = nullptr;
    const SharedMemory* memory = nullptr;
    Region shared;
    std::vector<std::pair<const char*, const char*>> variables;  // the one that begins in each kApart bytes
    std::map<const char*, std::vector<std::unique_ptr<Cells>>>
        of_shared;                 // by its first address, of each block
    std::array<Region, 8> recent;  // allocations that were accessed
    unsigned next_recent = 0;
    Releases releases;
};
Shadow shadow;

std::string in_bytes(std::size_t bytes) {
    return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

// Begins each message.
std::string does(Access access) {
    return access == Access::write    ? "a thread writes"
           : access == Access::atomic ? "a thread changes atomically"
                                      : "a thread reads";
}
std::string does(Access access, std::size_t bytes) {
    return does(access) + " " + in_bytes(bytes);
}

[[noreturn]] void refuse_access(const std::string& what, const void* code) {
    refuse(what + ", " + source_of(code));
}

std::string name_of(const char* place, bool is_shared) {
    if (!is_shared) return "global memory";
    const auto offset = static_cast<std::size_t>(place - shadow.shared.first);
    for (const SharedVariable& variable : shadow.memory->variables)
        if (offset >= variable.offset && offset < variable.offset + variable.size)
            return "shared " + variable.name;
    return "shared memory";
}

Now now_of_thread() {
    return {progress.launch, progress.block, progress.barriers, progress.exchanges[progress.thread / 32],
            static_cast<std::uint16_t>(progress.thread)};
}

void look(const char* place, std::size_t bytes, Access access, const Region& region, bool is_shared,
          const void* code) {
    Now now = now_of_thread();
    now.may_be_cached = access == Access::read;
    auto offset = static_cast<std::size_t>(place - region.first);
    while (bytes > 0) {
        const std::size_t in_cell = std::min(bytes, kBytesOfCell - offset % kBytesOfCell);
        const auto which = static_cast<std::uint8_t>(((1u << in_cell) - 1) << offset % kBytesOfCell);
        const auto fault = note_access(region.cells[offset / kBytesOfCell], which, access, is_shared, now,
                                       is_shared ? nullptr : &shadow.releases);
        if (fault.kind == Fault::unwritten)
            refuse_access(
                does(access) + " " + name_of(place, is_shared) + ", which no thread of its block has written",
                code);
        if (fault.kind != Fault::none)
            refuse_access(
                "a race: " + does(access) + " " + name_of(place, is_shared) + " that " +
                    (fault.is_other_block ? "another block"
                                          : "thread " + std::to_string(fault.other) + " of its block") +
                    (fault.kind == Fault::after_read ? " reads" : " writes") +
                    ", with nothing that orders them" +
                    (fault.kind == Fault::unfenced ? ": this one has had no fence since its atomic" : ""),
                code);
        offset += in_cell;
        bytes -= in_cell;
    }
}

void look_at_shared(const char* place, std::size_t bytes, Access access, const void* code) {
    const auto offset = static_cast<std::size_t>(place - shadow.shared.first);
    const auto [first, end] = shadow.variables[offset / kApart];
    // Whether a variable with a constructor has been constructed.
    if (place >= end && bytes == 1 && std::ranges::binary_search(shadow.memory->guards, offset)) return;
    if (place < first || place + bytes > end)
        refuse_access(does(access, bytes) + " beyond the end of " + name_of(first, true), code);
    look(place, bytes, access, shadow.shared, true, code);
}

// Of the thread's place in the grid. Each is where the program that runs the kernels wants it.
bool is_index(const char* place) {
    const auto is_of = [place](const void* index, std::size_t size) {
        return place >= static_cast<const char*>(index) && place < static_cast<const char*>(index) + size;
    };
    return is_of(&threadIdx, sizeof threadIdx) || is_of(&blockIdx, sizeof blockIdx) ||
           is_of(&blockDim, sizeof blockDim) || is_of(&gridDim, sizeof gridDim);
}

// Where the module has constants.
bool is_of_module(const char* place) {
    return place >= shadow.memory->code && place < shadow.memory->code_end;
}

void look_at_global(const char* place, std::size_t bytes, Access access, const void* code) {
    for (const Region& region : shadow.recent)
        if (place >= region.first && place + bytes <= region.end)
            return look(place, bytes, access, region, false, code);
    if (is_of_module(place)) return;
    const std::lock_guard lock(allocations_mutex);
    const auto found = allocations().upper_bound(place);
    if (found == allocations().end() || place < found->second.pages)
        refuse_access(does(access, bytes) + " of memory that is not the GPU's", code);
    Allocation& allocation = found->second;
    if (place < allocation.part || place + bytes > allocation.part_end)
        refuse_access(does(access, bytes) + (place < allocation.part ? " before" : " beyond the end of") +
                          (allocation.is_whole ? " memory of " : " a part of ") +
                          in_bytes(static_cast<std::size_t>(allocation.part_end - allocation.part)),
                      code);
    if (allocation.cells == nullptr)
        allocation.cells =
            std::make_unique<Cells>(static_cast<std::size_t>(allocation.pages_end - allocation.place));
    Region& region = shadow.recent[shadow.next_recent++ % shadow.recent.size()];
    region = {allocation.part, allocation.part_end,
              allocation.cells->first + (allocation.part - allocation.place) / kBytesOfCell};
    look(place, bytes, access, region, false, code);
}

}  // namespace

void watch_stacks(const char* first, std::size_t size) {
    shadow.stacks = first;
    shadow.stacks_end = first + size;
}

void watch_kernel(const SharedMemory& memory) {
    // Others may have been freed since.
    shadow.recent = {};
    shadow.releases = {};
    if (shadow.memory == &memory && shadow.shared.first == memory.first) return;
    shadow.memory = &memory;
    shadow.of_shared[memory.first].clear();
    shadow.shared = {memory.first, memory.first + memory.size, nullptr};
    shadow.variables.assign(memory.size / kApart + 1, {nullptr, nullptr});
    for (const SharedVariable& variable : memory.variables) {
        if (variable.offset % kApart != 0)
            refuse("the shared variable " + variable.name + " of an instrumented module is not apart");
        const char* const first = memory.first + variable.offset;
        for (std::size_t i = 0; i <= variable.size / kApart; ++i)
            shadow.variables[variable.offset / kApart + i] = {first, first + variable.size};
    }
}

void watch_block(unsigned number) {
    auto& blocks = shadow.of_shared[shadow.memory->first];
    while (blocks.size() <= number)
        blocks.push_back(
            std::make_unique<Cells>((shadow.memory->size + kApart) / kBytesOfCell * kBytesOfCell));
    shadow.shared.cells = blocks[number]->first;
}

void watch_allocation(const void* place, std::size_t bytes, const void* pages, std::size_t mapped) {
    const std::lock_guard lock(allocations_mutex);
    const char *const first = static_cast<const char*>(place),
                      *const first_page = static_cast<const char*>(pages), *const end = first_page + mapped;
    allocations()[end] = {first, first_page, end, first, first + bytes, true, nullptr};
}

void watch_part(const void* place, const void* part, std::size_t bytes) {
    const std::lock_guard lock(allocations_mutex);
    const auto found = allocations().upper_bound(static_cast<const char*>(place));
    if (found == allocations().end()) return;
    Allocation& allocation = found->second;
    allocation.part = static_cast<const char*>(part);
    allocation.part_end = allocation.part + bytes;
    allocation.is_whole = false;
}

void forget_allocation(const void* place) {
    const std::lock_guard lock(allocations_mutex);
    const auto found = allocations().upper_bound(static_cast<const char*>(place));
    if (found != allocations().end()) allocations().erase(found);
}

bool is_watched(const void* where) {
    const char *const place = static_cast<const char*>(where), *const here = static_cast<const char*>(
                                                                   __builtin_frame_address(0));
    return here >= shadow.stacks && here < shadow.stacks_end &&
           (place < shadow.stacks || place >= shadow.stacks_end);
}

void watch(const void* where, std::size_t bytes, Access access, const void* code) {
    if (!is_watched(where)) return;
    const char* const place = static_cast<const char*>(where);
    if (place >= shadow.shared.first && place < shadow.shared.end)
        return look_at_shared(place, bytes, access, code);
    if (!is_index(place)) look_at_global(place, bytes, access, code);
}

void watch_fence() {
    shadow.releases.note_fence(now_of_thread());
}

void watch_atomic(const void* place, std::size_t bytes, const void* code) {
    watch(place, bytes, Access::atomic, code);
    const bool is_shared = place >= shadow.shared.first && place < shadow.shared.end;
    if (is_watched(place) && !is_shared) shadow.releases.note_atomic(place, now_of_thread());
}

}  // namespace dp::cuda_emulator
