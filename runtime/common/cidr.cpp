// SPDX-License-Identifier: Apache-2.0
#include "common/cidr.hpp"

#include <arpa/inet.h>

#include "base/text.hpp"

namespace dp {

std::optional<std::vector<uint8_t>> address_bytes(const std::string& address) {
    std::vector<uint8_t> bytes(16);
    if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) {
        bytes.resize(4);
        return bytes;
    }
    if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return bytes;
    return std::nullopt;
}

std::optional<Network> parse_cidr(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    auto address = address_bytes(std::string(text.substr(0, slash)));
    auto prefix = parse_number<unsigned>(text.substr(slash + 1));
    if (!address || !prefix || *prefix > address->size() * 8) return std::nullopt;
    return Network{std::move(*address), *prefix};
}

bool Network::contains(const std::string& numeric) const {
    auto other = address_bytes(numeric);
    if (!other || other->size() != address.size()) return false;
    for (unsigned bit = 0; bit < prefix; ++bit) {
        const uint8_t mask = static_cast<uint8_t>(0x80u >> (bit % 8));
        if ((address[bit / 8] & mask) != ((*other)[bit / 8] & mask)) return false;
    }
    return true;
}

}  // namespace dp
