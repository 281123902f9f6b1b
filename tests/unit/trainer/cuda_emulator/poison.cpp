// SPDX-License-Identifier: Apache-2.0
#include "poison.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace dp::cuda_emulator {
namespace {

constexpr int kPoison = 0xFF;  // NaN in f32 and in bf16
// As much as a kernel's variables take.
constexpr std::size_t kOfStack = 4096;

void fill(const SharedMemory& memory, const SharedVariable& variable) {
    std::memset(memory.first + variable.offset, kPoison, variable.size);
}

bool is_poison(const char* first, std::size_t size) {
    return std::all_of(first, first + size,
                       [](char byte) { return static_cast<unsigned char>(byte) == kPoison; });
}

bool is_written(const SharedMemory& memory, const SharedVariable& variable, bool whole) {
    constexpr std::size_t kLooked = 16;
    const char *first = memory.first + variable.offset, *end = first + variable.size;
    const std::size_t looked = whole ? variable.size : std::min(variable.size, kLooked);
    return !is_poison(first, looked) || !is_poison(end - looked, looked);
}

}  // namespace

PoisonedMemory::PoisonedMemory(const SharedMemory& memory, const void* kernel)
    : memory_(memory), is_used_([&]() -> std::vector<bool>& {
          static std::map<const void*, std::vector<bool>> of_kernels;
          return of_kernels[kernel];
      }()) {
    is_new_ = is_used_.empty();
    is_used_.resize(memory.variables.size());
    // A thread's shared memory is zeros at first.
    thread_local std::set<const char*> known;
    if (!known.insert(memory.first).second) return;
    for (const SharedVariable& variable : memory.variables) fill(memory, variable);
}

void PoisonedMemory::before_block() {
    for (std::size_t i = 0; i < is_used_.size(); ++i)
        if (is_used_[i]) fill(memory_, memory_.variables[i]);
}

void PoisonedMemory::after_block() {
    find_used(is_new_);
    is_new_ = false;
}

// A module has a hundred variables, most of them large, and a kernel uses a few: all of them are looked through after the first
// block that the kernel ever has, and then their first and last bytes.
void PoisonedMemory::find_used(bool in_whole) {
    for (std::size_t i = 0; i < is_used_.size(); ++i)
        if (!is_used_[i] && is_written(memory_, memory_.variables[i], in_whole)) is_used_[i] = true;
}

void poison_stack(char* end) {
    std::memset(end - kOfStack, kPoison, kOfStack);
}

}  // namespace dp::cuda_emulator
