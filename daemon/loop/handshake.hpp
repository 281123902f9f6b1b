// SPDX-License-Identifier: Apache-2.0
//
// How a relay and the broker prove to each other that they know the step's secret: challenge and response
// with HMAC-SHA256 (RFC 2104). Each direction has its own label, so that no proof can be reflected. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/failure.hpp"

namespace dp {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// The secret's bytes, from the 64 hexadecimal digits of the configuration.
Try<std::string> secret_from_hex(std::string_view hex);

// What the step's record is known by, 16 hexadecimal digits: equal on all its nodes, and it does not tell the secret.
std::string make_run_id(std::string_view secret);

std::string make_nonce();

enum class Prover { relay, broker };

// The content of a proof. It includes the address and port at which the relay reached the broker, so that
// nobody on another candidate port, or on another node where the broker might be, can forward both sides'
// proofs and stand between them. (Addresses must be the same on both sides: no NAT between nodes.)
struct ProofText {
    Prover prover;
    std::string_view broker_nonce;
    std::string_view relay_nonce;
    uint32_t node_rank = 0;
    uint32_t generation = 0;  // of the relay's node, and the broker's: what is past cannot be replayed
    uint16_t broker_port = 0;
    std::string_view broker_address;  // numeric
};
std::string make_proof(std::string_view secret, const ProofText& about);

// Compares in constant time.
bool proof_equals(std::string_view a, std::string_view b);

}  // namespace dp
