// SPDX-License-Identifier: Apache-2.0
//
// libevent's buffers: their owner, and bytes that several of them send without a copy.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include <memory>

#include "engine/shared_message.hpp"

namespace dp {

struct FreeBuffer {
    void operator()(bufferevent* b) const { bufferevent_free(b); }
};
using BufferPtr = std::unique_ptr<bufferevent, FreeBuffer>;

inline size_t unsent(const BufferPtr& buffer) {
    return evbuffer_get_length(bufferevent_get_output(buffer.get()));
}

// Appends them to what is sent. Null or empty: nothing.
inline void add_shared(const BufferPtr& buffer, const SharedBytes& bytes) {
    if (!bytes || bytes->empty()) return;
    auto* share = new SharedBytes(bytes);
    auto release = [](const void*, size_t, void* pointer) { delete static_cast<SharedBytes*>(pointer); };
    if (evbuffer_add_reference(bufferevent_get_output(buffer.get()), bytes->data(), bytes->size(), release,
                               share) != 0)
        delete share;
}

}  // namespace dp
