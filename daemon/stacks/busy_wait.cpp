// SPDX-License-Identifier: Apache-2.0
#include "stacks/busy_wait.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "stacks/waiting.hpp"

namespace dp::stacks {
namespace {

// Of each kind of memory, the most that is compared.
constexpr size_t kMostStack = 64 << 10, kMostGlobals = 256 << 10, kBehindRegister = 512;

void append(std::string& to, const Process& process, uint64_t begin, size_t size) {
    const size_t before = to.size();
    to.resize(before + size);
    to.resize(before + process.read_some(begin, to.data() + before, size));
}

// An object with a counter is behind a register, a Fortran program's variables are global ones.
uint64_t hash_of_variables(const Process& process, const BusyWait& wait) {
    std::string bytes;
    append(bytes, process, wait.stack_begin,
           std::min<uint64_t>(wait.stack_end - wait.stack_begin, kMostStack));
    if (bytes.empty()) return 0;
    for (const uint64_t address : wait.registers)
        if (address > kBehindRegister) append(bytes, process, address, kBehindRegister);
    // The last part of the program's file that is mapped can be written, and what has no place in the file comes behind it.
    const auto& all = process.mappings();
    const auto last = std::find_if(all.rbegin(), all.rend(),
                                   [&](const Mapping& one) { return one.path == process.program(); });
    if (last != all.rend()) append(bytes, process, last->begin, kMostGlobals);
    return std::hash<std::string>()(bytes) | 1;
}

}  // namespace

bool may_wait_busily(const Process& process) {
    constexpr std::array<std::string_view, 6> kLibraries = {"/libmpi",         "/libcuda.so", "/libnccl.so",
                                                            "/libamdhip64.so", "/liboshmem",  "/libdp.so"};
    return std::ranges::any_of(process.mappings(), [&](const Mapping& one) {
        return std::ranges::any_of(
            kLibraries, [&](std::string_view name) { return one.path.find(name) != std::string::npos; });
    });
}

std::optional<BusyWait> busy_wait_of(const Process& process, const std::vector<NativeFrame>& frames) {
    const auto outermost = std::find_if(frames.rbegin(), frames.rend(),
                                        [](const NativeFrame& one) { return waits_for_others(one.frame); });
    if (outermost == frames.rend() || outermost == frames.rbegin()) return std::nullopt;
    const NativeFrame& caller = *std::prev(outermost);
    BusyWait wait{caller.instruction, caller.stack_pointer, frames.back().stack_pointer,
                  caller.kept_registers, 0};
    if (wait.stack_begin == 0 || wait.stack_end < wait.stack_begin) return std::nullopt;
    // The outermost function's variables, too.
    constexpr uint64_t kOutermost = 1024;
    wait.stack_end += kOutermost;
    wait.memory = hash_of_variables(process, wait);
    return wait.memory == 0 ? std::nullopt : std::optional(wait);
}

bool may_be_the_same(const BusyWait& one, const BusyWait& other) {
    if (one.instruction != other.instruction || one.stack_begin != other.stack_begin ||
        one.memory != other.memory)
        return false;
    return std::ranges::equal(one.registers, other.registers, [](uint64_t here, uint64_t there) {
        return here == there || here == 0 || there == 0;
    });
}

bool may_still_be_in(const Process& process, const BusyWait& wait) {
    return hash_of_variables(process, wait) == wait.memory;
}

}  // namespace dp::stacks
