// SPDX-License-Identifier: Apache-2.0
#include "loop/handshake.hpp"

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace dp {

Try<std::string> secret_from_hex(std::string_view hex) {
    std::string out;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        unsigned value = 0;
        for (char c : hex.substr(i, 2)) {
            if (c >= '0' && c <= '9')
                value = value * 16 + static_cast<unsigned>(c - '0');
            else if (c >= 'a' && c <= 'f')
                value = value * 16 + static_cast<unsigned>(c - 'a' + 10);
            else
                return fail("the step's secret is malformed");
        }
        out += static_cast<char>(value);
    }
    if (out.size() != 32) return fail("the step's secret has the wrong length");
    return out;
}

std::string make_nonce() {
    std::string nonce(kNonceBytes, '\0');
    size_t have = 0;
    while (have < nonce.size()) {
        ssize_t n = getrandom(nonce.data() + have, nonce.size() - have, 0);
        if (n > 0)
            have += static_cast<size_t>(n);
        else if (errno != EINTR)
            std::abort();  // a guessable nonce would be worse than no daemon
    }
    return nonce;
}

std::string make_proof(std::string_view secret, const ProofText& about) {
    std::string text = about.prover == Prover::relay ? "slurm-dp relay 2|" : "slurm-dp broker 2|";
    text += about.broker_nonce;
    text += about.relay_nonce;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(about.node_rank >> shift);
    text += static_cast<char>(about.broker_port >> 8);
    text += static_cast<char>(about.broker_port);
    text += about.broker_address;
    auto bytes = [](std::string_view view) { return reinterpret_cast<const uint8_t*>(view.data()); };
    hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, secret.size(), bytes(secret));
    hmac_sha256_update(&context, text.size(), bytes(text));
    uint8_t digest[kProofBytes];
    hmac_sha256_digest(&context, sizeof digest, digest);
    return std::string(reinterpret_cast<char*>(digest), sizeof digest);
}

bool proof_equals(std::string_view a, std::string_view b) {
    return a.size() == kProofBytes && b.size() == kProofBytes && memeql_sec(a.data(), b.data(), kProofBytes);
}

}  // namespace dp
