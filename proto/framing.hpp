// SPDX-License-Identifier: Apache-2.0
//
// Messages and their frames: a big-endian u32 length, then as many bytes of one protobuf message. The length
// is checked against a limit before a byte of the message is stored or parsed. Used by the daemon and libdp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dp {

inline constexpr uint32_t kProtocol = 4;      // of a rank and its node's daemon
inline constexpr uint32_t kNodeProtocol = 6;  // of a relay and the broker
inline constexpr size_t kFrameHeader = 4;
// A value of DP_MAX_VALUE_BYTES and its key, twice (compare-set), plus room for the rest.
inline constexpr size_t kMaxFrame = 3 * 1024 * 1024;
// All that an unproven peer may send: a nonce, a proof and a few more bytes.
inline constexpr size_t kMaxHandshakeFrame = 256;

// A message that has one of its kinds: wrap(&wire::ToRank::mutable_abort, abort).
template <typename Message, typename Kind>
Message wrap(Kind* (Message::*mutable_kind)(), std::type_identity_t<Kind> kind = {}) {
    Message message;
    *(message.*mutable_kind)() = std::move(kind);
    return message;
}

// `following`: bytes that the caller sends after it, as the rest of the frame. protobuf merges the messages
// in both parts, so what many receivers get is serialised once.
template <typename Message>
std::string to_frame(const Message& message, size_t following = 0) {
    std::string body = message.SerializeAsString();
    const auto n = static_cast<uint32_t>(body.size() + following);
    const char header[kFrameHeader] = {static_cast<char>(n >> 24), static_cast<char>(n >> 16),
                                       static_cast<char>(n >> 8), static_cast<char>(n)};
    return body.insert(0, header, kFrameHeader);
}

// The length in a header of kFrameHeader bytes; nullopt if it exceeds the limit.
inline std::optional<size_t> frame_length(const unsigned char* header, size_t limit) {
    const size_t n = static_cast<size_t>(header[0]) << 24 | static_cast<size_t>(header[1]) << 16 |
                     static_cast<size_t>(header[2]) << 8 | header[3];
    if (n > limit) return std::nullopt;
    return n;
}

template <typename Message>
std::optional<Message> parse_message(std::string_view body) {
    Message message;
    if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
    return message;
}

// Takes the complete frames from the front of `bytes`. False: one is longer than the limit, or no such message.
template <typename Message, typename OnMessage>
bool take_frames(std::string& bytes, size_t limit, const OnMessage& on_message) {
    while (bytes.size() >= kFrameHeader) {
        const auto length = frame_length(reinterpret_cast<const unsigned char*>(bytes.data()), limit);
        if (!length) return false;
        if (bytes.size() < kFrameHeader + *length) return true;
        const auto message = parse_message<Message>(std::string_view(bytes).substr(kFrameHeader, *length));
        bytes.erase(0, kFrameHeader + *length);
        if (!message) return false;
        on_message(*message);
    }
    return true;
}

}  // namespace dp
