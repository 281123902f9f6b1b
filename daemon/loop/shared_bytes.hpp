// SPDX-License-Identifier: Apache-2.0
//
// Bytes that many sockets send: stored once, until the last has sent them.
#pragma once

#include <event2/buffer.h>

#include <memory>
#include <string>

namespace dp {

using SharedBytes = std::shared_ptr<const std::string>;

// Adds them to a buffer without a copy. Null or empty: nothing.
inline void add_shared(evbuffer* output, const SharedBytes& bytes) {
    if (!bytes || bytes->empty()) return;
    auto* share = new SharedBytes(bytes);
    auto release = [](const void*, size_t, void* pointer) { delete static_cast<SharedBytes*>(pointer); };
    if (evbuffer_add_reference(output, bytes->data(), bytes->size(), release, share) != 0) delete share;
}

// The common parts of messages as bytes, each serialised once if its receivers come one after another.
template <typename Message>
class WrittenOnce {
 public:
    const SharedBytes& operator()(const std::shared_ptr<const Message>& common) {
        if (common.get() != message_.get()) {
            message_ = common;
            bytes_ = common ? std::make_shared<const std::string>(common->SerializeAsString()) : nullptr;
        }
        return bytes_;
    }

 private:
    std::shared_ptr<const Message> message_;
    SharedBytes bytes_;
};

}  // namespace dp
