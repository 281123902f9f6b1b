// SPDX-License-Identifier: Apache-2.0
//
// How a relay and the broker prove to each other that they know the step's secret: challenge and response
// with HMAC-SHA256 (RFC 2104), a label for each direction so that no proof can be sent back as the other's.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.hpp"

namespace dp {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// The secret's bytes from the 64 hexadecimal digits of the configuration.
Try<std::string> secret_from_hex(std::string_view hex);

std::string make_nonce();

enum class Prover { relay, broker };
std::string make_proof(std::string_view secret, Prover prover, std::string_view broker_nonce,
                       std::string_view relay_nonce, uint32_t node_rank);

// In constant time.
bool proof_equals(std::string_view a, std::string_view b);

}  // namespace dp
