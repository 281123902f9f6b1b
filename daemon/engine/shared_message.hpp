// SPDX-License-Identifier: Apache-2.0
//
// A message to one of many receivers, in two parts: its own, and a common one that others get, too. The
// common part is serialised once; protobuf reads both parts in sequence as one message (to_frame).
#pragma once

#include <memory>
#include <utility>

namespace dp {

template <typename Message>
struct SharedMessage {
    Message own;
    std::shared_ptr<const Message> common;  // may be null

    SharedMessage(Message message)  // NOLINT(google-explicit-constructor): a message is one of one part
        : own(std::move(message)) {}
    SharedMessage(Message message, std::shared_ptr<const Message> shared)
        : own(std::move(message)), common(std::move(shared)) {}

    // The message that its receiver reads.
    Message whole() const {
        Message message = own;
        if (common) message.MergeFrom(*common);
        return message;
    }
};

}  // namespace dp
