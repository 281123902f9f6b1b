// SPDX-License-Identifier: Apache-2.0
//
// Node lists: whatever expands can be compressed, and expands to the same hosts again.
#include "common/hostlist.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto hosts = dp::expand_hostlist(dp::fuzz::text_of(data, size));
    if (!hosts) {
        dp::fuzz::must(!hosts.error().message.empty(), "a refusal says why");
        return 0;
    }
    dp::fuzz::must(hosts->size() <= dp::kMaxHosts, "no more hosts than the limit");
    if (hosts->empty()) return 0;
    const auto again = dp::expand_hostlist(dp::compress_hostlist(*hosts));
    dp::fuzz::must(again && *again == *hosts, "compressed and expanded it is the same list");
    return 0;
}
