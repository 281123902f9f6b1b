// SPDX-License-Identifier: Apache-2.0
//
// A message that has one of its kinds: wrap(&wire::ToRank::mutable_abort, abort).
#pragma once

#include <type_traits>
#include <utility>

namespace dp {

template <typename Message, typename Kind>
Message wrap(Kind* (Message::*mutable_kind)(), std::type_identity_t<Kind> kind = {}) {
    Message message;
    *(message.*mutable_kind)() = std::move(kind);
    return message;
}

}  // namespace dp
