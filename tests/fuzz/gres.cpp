// SPDX-License-Identifier: Apache-2.0
//
// What Slurm says of a node's gres: whatever is understood can be written, and means the same again.
#include "tiles/gres.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto given = dp::parse_gres_detail(dp::fuzz::text_of(data, size));
    if (!given) {
        dp::fuzz::must(!given.error().message.empty(), "a refusal says why");
        return 0;
    }
    for (const auto& units : *given) {
        dp::fuzz::must(!units.name.empty(), "what is given has a name");
        if (units.indices && !units.indices->empty())
            dp::fuzz::must(units.indices->back() <= dp::kMaxGresIndex, "no index over the limit");
    }
    const auto again = dp::parse_gres_detail(dp::gres_detail(*given));
    dp::fuzz::must(again && *again == *given, "written and read it is the same");
    return 0;
}
