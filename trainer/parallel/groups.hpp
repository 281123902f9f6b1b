// SPDX-License-Identifier: Apache-2.0
//
// A rank's communicators, owned; the rest of the trainer sees them as Ranks.
#pragma once

#include <memory>
#include <utility>

#include "trainer/base/ranks.hpp"

namespace dp::trainer {

struct Groups {
    std::unique_ptr<Communicator> world = {};
    bool divides_model = false;  // else `data` is the world
    // Null where the rank is alone in its group.
    std::unique_ptr<Communicator> data = {}, tensor = {}, pipeline = {};

    Ranks ranks() const {
        if (!divides_model) return {*world};
        const auto of = [](const auto& one) -> Communicator& { return one ? *one : Ranks::alone(); };
        return {*world, of(data), of(tensor), of(pipeline)};
    }
    // Puts `wrap(communicator)` in the place of each.
    template <typename Wrap>
    void wrap(const Wrap& wrap) {
        for (auto* one : {&world, &data, &tensor, &pipeline})
            if (*one) *one = wrap(std::move(*one));
    }
};

}  // namespace dp::trainer
