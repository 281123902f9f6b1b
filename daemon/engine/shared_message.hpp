// SPDX-License-Identifier: Apache-2.0
//
// A message to one of many receivers: its own part, and bytes that others get, too. These are serialised and
// stored once; protobuf reads both in sequence as one message (to_frame).
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace dp {

using SharedBytes = std::shared_ptr<const std::string>;

template <typename Message>
struct SharedMessage {
    Message own;
    SharedBytes rest;  // may be null

    SharedMessage(Message message, SharedBytes shared = nullptr)  // NOLINT(google-explicit-constructor)
        : own(std::move(message)), rest(std::move(shared)) {}

    // The message that its receiver reads.
    Message whole() const {
        Message message = own;
        if (rest) message.MergeFromString(*rest);
        return message;
    }
};

template <typename Message>
SharedBytes shared_bytes(const Message& message) {
    return std::make_shared<const std::string>(message.SerializeAsString());
}

}  // namespace dp
