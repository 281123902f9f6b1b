// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/sha256.hpp"

namespace dp::trainer {

std::string hex_of(const Sha256::Digest& digest) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : digest) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

}  // namespace dp::trainer
