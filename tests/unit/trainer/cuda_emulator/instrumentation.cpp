// SPDX-License-Identifier: Apache-2.0
//
// The functions that GCC calls where kernels are compiled with -fsanitize=thread,alignment,bounds, in the place of libtsan's and
// libubsan's: an access of a kernel is the shadow's business. Names and arguments are those of LLVM's compiler-rt,
// tsan/rtl/tsan_interface.h and ubsan/ubsan_handlers.h.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "accesses.hpp"
#include "blocks.hpp"

namespace dp::cuda_emulator {

// By addr2line, if it is there, with the places where it was inlined; else as an address of the file.
std::string source_of(const void* return_address) {
    constexpr int kMostPlaces = 4;
    const char* const code = static_cast<const char*>(return_address) - 1;  // in the call
    Dl_info about{};
    if (dladdr(code, &about) == 0) return "at an unknown place";
    char address[32];
    std::snprintf(address, sizeof address, "0x%zx",
                  static_cast<std::size_t>(code - static_cast<const char*>(about.dli_fbase)));
    std::string said;
    const std::string command =
        "addr2line -i -s -e '" + std::string(about.dli_fname) + "' " + address + " 2>/dev/null";
    if (FILE* const output = popen(command.c_str(), "r"); output != nullptr) {
        char line[4096];
        for (int i = 0; i < kMostPlaces && std::fgets(line, sizeof line, output) != nullptr; ++i) {
            const std::string place(line, std::strcspn(line, " \n"));
            if (place.find('?') == place.npos) said += (said.empty() ? "" : " from ") + place;
        }
        pclose(output);
    }
    return "at " + (said.empty() ? std::string(address) + " of " + about.dli_fname : said);
}

namespace {

void aligned(const void* place, std::size_t bytes, Access access, const void* code) {
    // Elsewhere the compiler copies a structure in as large pieces as the host can.
    if (is_watched(place) && reinterpret_cast<std::uintptr_t>(place) % bytes != 0)
        refuse("an access of " + std::to_string(bytes) +
               " bytes at an address that is not a multiple of that, " + source_of(code));
    watch(place, bytes, access, code);
}

// Compiler-rt's descriptions, as far as they are used.
struct UbsanPlace {
    const char* file;
    std::uint32_t line, column;
};
std::string text(const UbsanPlace& place) {
    return "at " + std::string(place.file) + ":" + std::to_string(place.line);
}

}  // namespace
}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

#define ACCESSES(bytes)                                                            \
    void __tsan_read##bytes(void* place) {                                         \
        aligned(place, bytes, Access::read, __builtin_return_address(0));          \
    }                                                                              \
    void __tsan_write##bytes(void* place) {                                        \
        aligned(place, bytes, Access::write, __builtin_return_address(0));         \
    }                                                                              \
    void __tsan_volatile_read##bytes(void* place) {                                \
        aligned(place, bytes, Access::volatile_read, __builtin_return_address(0)); \
    }                                                                              \
    void __tsan_volatile_write##bytes(void* place) {                               \
        aligned(place, bytes, Access::write, __builtin_return_address(0));         \
    }                                                                              \
    void __tsan_unaligned_volatile_read##bytes(void* place) {                      \
        watch(place, bytes, Access::volatile_read, __builtin_return_address(0));   \
    }                                                                              \
    void __tsan_unaligned_volatile_write##bytes(void* place) {                     \
        watch(place, bytes, Access::write, __builtin_return_address(0));           \
    }                                                                              \
    void __tsan_unaligned_read##bytes(void* place) {                               \
        watch(place, bytes, Access::read, __builtin_return_address(0));            \
    }                                                                              \
    void __tsan_unaligned_write##bytes(void* place) {                              \
        watch(place, bytes, Access::write, __builtin_return_address(0));           \
    }

// Atomics of the host's code beside the kernels, such as std::shared_ptr's.
#define ATOMICS(bits, Type)                                                                                 \
    Type __tsan_atomic##bits##_load(const volatile Type* at, int) {                                         \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                       \
    }                                                                                                       \
    void __tsan_atomic##bits##_store(volatile Type* at, Type value, int) {                                  \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                      \
    }                                                                                                       \
    Type __tsan_atomic##bits##_exchange(volatile Type* at, Type value, int) {                               \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                            \
    }                                                                                                       \
    Type __tsan_atomic##bits##_fetch_add(volatile Type* at, Type value, int) {                              \
        return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                                       \
    Type __tsan_atomic##bits##_fetch_sub(volatile Type* at, Type value, int) {                              \
        return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                                       \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile Type* at, Type* is, Type value, int, int) { \
        return __atomic_compare_exchange_n(at, is, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }                                                                                                       \
    bool __tsan_atomic##bits##_compare_exchange_weak(volatile Type* at, Type* is, Type value, int, int) {   \
        return __atomic_compare_exchange_n(at, is, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler's names.
extern "C" {

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* place, std::size_t bytes) {
    watch(place, bytes, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* place, std::size_t bytes) {
    watch(place, bytes, Access::write, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
ATOMICS(8, std::uint8_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

void __ubsan_handle_type_mismatch_v1(const UbsanPlace* place, const void* address) {
    char said[32];
    std::snprintf(said, sizeof said, "%p", address);
    refuse("an access to " + std::string(said) + ", which is not a multiple of what is accessed, " +
           text(*place));
}
void __ubsan_handle_out_of_bounds(const UbsanPlace* place, std::size_t index) {
    refuse("an index beyond an array, " + std::to_string(index) + ", " + text(*place));
}
}
// NOLINTEND(bugprone-reserved-identifier)
