// SPDX-License-Identifier: Apache-2.0
//
// Callers and their answers, exchanged between the parts of the broker.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"

namespace dp {

// One call of one rank; `id` is the rank's own count.
struct Caller {
    uint32_t rank = 0;
    uint64_t id = 0;
    auto operator<=>(const Caller&) const = default;
};

struct Answer {
    std::vector<Caller> callers;
    wire::Reply reply;  // without id
};

inline wire::Reply reply_with(wire::Status status, std::string error = {}) {
    wire::Reply reply;
    reply.set_status(status);
    reply.set_error(std::move(error));
    return reply;
}
inline Answer answer(Caller caller, wire::Status status, std::string error = {}) {
    return {{caller}, reply_with(status, std::move(error))};
}

}  // namespace dp
