// SPDX-License-Identifier: Apache-2.0
//
// Node lists: whatever expands can be compressed, and expands to the same hosts again; each is found
// without expanding.
#include "common/hostlist.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto hosts = dp::expand_hostlist(dp::fuzz::text_of(data, size));
    if (!hosts) {
        dp::fuzz::must(!hosts.error().message.empty(), "a refusal says why");
        return 0;
    }
    dp::fuzz::must(hosts->size() <= dp::kMaxHosts, "no more hosts than the limit");
    const auto list = dp::Hostlist::read(dp::fuzz::text_of(data, size));
    dp::fuzz::must(list && list->size() == hosts->size(), "as many hosts as were counted");
    for (size_t i = 0; i < hosts->size(); i += 1 + hosts->size() / 16) {
        dp::fuzz::must(list->at(i) == (*hosts)[i], "each at its place");
        dp::fuzz::must(list->has((*hosts)[i]), "each is there");
    }
    const dp::Hostlist both[] = {*list, *list};
    dp::fuzz::must(dp::shared_host(both).has_value() != hosts->empty(),
                   "a list has its hosts in common with itself");
    if (hosts->empty()) return 0;
    const auto again = dp::expand_hostlist(dp::compress_hostlist(*hosts));
    dp::fuzz::must(again && *again == *hosts, "compressed and expanded it is the same list");
    return 0;
}
