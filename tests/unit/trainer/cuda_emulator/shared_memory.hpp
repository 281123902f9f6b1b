// SPDX-License-Identifier: Apache-2.0
//
// Where the shared variables of a module's kernels are. On the emulated GPU `__shared__` is a thread-local of its function, so that
// all of them, and little else, lie together in the module's thread-local segment; the symbol table says where each is.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dp::cuda_emulator {

struct SharedVariable {
    std::string name;
    std::size_t offset, size;  // in the segment
};

struct SharedMemory {
    char* first = nullptr;  // of this thread's segment
    std::size_t size = 0;
    std::vector<SharedVariable> variables;  // by their offsets
    // Which variables a function has, by the offset of its mark (device_code.hpp).
    std::map<std::size_t, std::vector<std::size_t>> of_functions;
    std::vector<std::size_t> guards;                  // offsets of what says whether one was constructed
    const char *code = nullptr, *code_end = nullptr;  // all that is loaded of the module
};

// Of the module of whose thread-locals `beside` is one, for the calling thread. Good as long as the thread lives.
const SharedMemory& shared_memory(const void* beside);

}  // namespace dp::cuda_emulator
