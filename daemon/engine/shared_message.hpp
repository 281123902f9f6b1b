// SPDX-License-Identifier: Apache-2.0
//
// A message to one of many receivers in two parts: what is its own, and what others get, too. The common part
// is made and written once for all; protobuf reads the two, one behind the other, as one message (to_frame).
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

    // As its receiver will read it.
    Message whole() const {
        Message message = own;
        if (common) message.MergeFrom(*common);
        return message;
    }
};

}  // namespace dp
