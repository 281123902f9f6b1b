// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target has: its function, and a check that stops the fuzzer where something is not as it
// must be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// NOLINTNEXTLINE: libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dp::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

inline void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

// The input as bytes to be used up; zeros when there are no more.
class Bytes {
 public:
    Bytes(const uint8_t* data, size_t size) : rest_(text_of(data, size)) {}
    bool empty() const { return rest_.empty(); }
    uint8_t byte() {
        if (rest_.empty()) return 0;
        const char first = rest_.front();
        rest_.remove_prefix(1);
        return static_cast<uint8_t>(first);
    }
    std::string_view take(size_t size) {
        const std::string_view taken = rest_.substr(0, size);
        rest_.remove_prefix(taken.size());
        return taken;
    }

 private:
    std::string_view rest_;
};

}  // namespace dp::fuzz
