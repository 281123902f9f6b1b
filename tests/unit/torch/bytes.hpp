// SPDX-License-Identifier: Apache-2.0
//
// What clients of PyTorch's TCPStore send, byte by byte, as its C++ sources write it; and what they get.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torch/request.hpp"

namespace dp::torch_bytes {

inline std::string u(uint64_t number, size_t bytes) {
    std::string out;
    for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
    return out;
}
inline std::string u64(uint64_t number) {
    return u(number, 8);
}
inline std::string op(int code) {
    return {static_cast<char>(code)};
}
// A key or a value.
inline std::string s(const std::string& text) {
    return u64(text.size()) + text;
}
inline std::string list(const std::vector<std::string>& parts) {
    std::string out = u64(parts.size());
    for (const auto& part : parts) out += s(part);
    return out;
}

inline const std::string kGreeting = op(0) + u(0x3C85F7CE, 4);

}  // namespace dp::torch_bytes
