// SPDX-License-Identifier: Apache-2.0
#include "loop/handshake.hpp"

#include <nettle/base16.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <unistd.h>

#include <cstdlib>

namespace dp {
namespace {

const uint8_t* bytes(std::string_view text) {
    return reinterpret_cast<const uint8_t*>(text.data());
}

std::string hmac(std::string_view secret, std::string_view text) {
    hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, secret.size(), bytes(secret));
    hmac_sha256_update(&context, text.size(), bytes(text));
    uint8_t digest[kProofBytes];
    hmac_sha256_digest(&context, sizeof digest, digest);
    return std::string(reinterpret_cast<char*>(digest), sizeof digest);
}

}  // namespace

Try<std::string> secret_from_hex(std::string_view hex) {
    std::string out(BASE16_DECODE_LENGTH(hex.size()), '\0');
    base16_decode_ctx context;
    base16_decode_init(&context);
    size_t size = 0;
    if (!base16_decode_update(&context, &size, reinterpret_cast<uint8_t*>(out.data()), hex.size(),
                              hex.data()) ||
        !base16_decode_final(&context) || size != kSecretBytes)
        return fail("the step's secret is not " + std::to_string(2 * kSecretBytes) + " hexadecimal digits");
    out.resize(size);
    return out;
}

std::string make_nonce() {
    std::string nonce(kNonceBytes, '\0');
    if (getentropy(nonce.data(), nonce.size()) != 0)
        std::abort();  // a guessable nonce would be worse than no daemon
    return nonce;
}

std::string make_run_id(std::string_view secret) {
    constexpr size_t kBytes = 8;
    std::string id(2 * kBytes, '\0');
    base16_encode_update(id.data(), kBytes, bytes(hmac(secret, "slurm-dp run 1")));
    return id;
}

std::string make_proof(std::string_view secret, const ProofText& about) {
    std::string text = about.prover == Prover::relay ? "slurm-dp relay 3|" : "slurm-dp broker 3|";
    text += about.broker_nonce;
    text += about.relay_nonce;
    for (const uint32_t number : {about.node_rank, about.generation})
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift);
    text += static_cast<char>(about.broker_port >> 8);
    text += static_cast<char>(about.broker_port);
    text += about.broker_address;
    return hmac(secret, text);
}

bool proof_equals(std::string_view a, std::string_view b) {
    return a.size() == kProofBytes && b.size() == kProofBytes && memeql_sec(a.data(), b.data(), kProofBytes);
}

}  // namespace dp
