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

inline Answer answer(Caller caller, wire::Status status, std::string error = {}) {
    Answer out;
    out.callers = {caller};
    out.reply.set_status(status);
    out.reply.set_error(std::move(error));
    return out;
}

}  // namespace dp
