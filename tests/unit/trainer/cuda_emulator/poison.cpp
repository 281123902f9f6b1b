// SPDX-License-Identifier: Apache-2.0
#include "poison.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "blocks.hpp"

namespace dp::cuda_emulator {
namespace {

constexpr int kPoison = 0xFF;  // NaN in f32 and in bf16
// As much as a kernel's variables take.
constexpr std::size_t kOfStack = 4096;

void fill(const SharedMemory& memory, const SharedVariable& variable) {
    std::memset(memory.first + variable.offset, kPoison, variable.size);
}

PoisonedMemory* of_launch = nullptr;

}  // namespace

PoisonedMemory::PoisonedMemory(const SharedMemory& memory) : memory_(memory) {
    of_launch = this;
    // A thread's shared memory is zeros at first.
    thread_local std::set<const char*> known;
    if (!known.insert(memory.first).second) return;
    for (const SharedVariable& variable : memory.variables) fill(memory, variable);
}

PoisonedMemory::~PoisonedMemory() {
    bring({});
    of_launch = nullptr;
}

void PoisonedMemory::keep(KeptVariables& kept) const {
    kept.resize(memory_.variables.size());
    for (const std::size_t i : used_) {
        const SharedVariable& variable = memory_.variables[i];
        const char* const first = memory_.first + variable.offset;
        kept[i].assign(first, first + variable.size);
    }
}

void PoisonedMemory::bring(const KeptVariables& kept) {
    for (const std::size_t i : used_) {
        const SharedVariable& variable = memory_.variables[i];
        if (i < kept.size() && !kept[i].empty()) {
            std::memcpy(memory_.first + variable.offset, kept[i].data(), kept[i].size());
        } else {
            fill(memory_, variable);
        }
    }
}

void PoisonedMemory::note(const void* mark) {
    if (std::ranges::find(marks_, mark) != marks_.end()) return;
    marks_.push_back(mark);
    const auto found =
        memory_.of_functions.find(static_cast<std::size_t>(static_cast<const char*>(mark) - memory_.first));
    if (found == memory_.of_functions.end()) refuse("a function's shared variables are not found");
    for (const std::size_t i : found->second)
        if (std::ranges::find(used_, i) == used_.end()) used_.push_back(i);
}

void note_shared(const void* mark) {
    of_launch->note(mark);
}

void poison_stack(char* end) {
    std::memset(end - kOfStack, kPoison, kOfStack);
}

}  // namespace dp::cuda_emulator
