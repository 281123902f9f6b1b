// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 of bytes that arrive in pieces, as sha256sum prints it. Nettle's implementation.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <string>

namespace dp::trainer {

class Sha256 {
 public:
    using Digest = std::array<std::uint8_t, SHA256_DIGEST_SIZE>;

    Sha256() { sha256_init(&context_); }
    void update(const void* bytes, std::size_t count) {
        sha256_update(&context_, count, static_cast<const std::uint8_t*>(bytes));
    }
    // The digest of everything so far; starts anew.
    Digest digest() {
        Digest digest;
        sha256_digest(&context_, digest.size(), digest.data());
        return digest;
    }

 private:
    sha256_ctx context_;
};

// As 64 lower-case hexadecimal digits.
inline std::string hex_of(const Sha256::Digest& digest) {
    return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace dp::trainer
