// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's store: records of client, length, bytes. Whatever four clients send, in whatever portions: they
// make progress or are closed, the store stays below its limit, and what belonged to a client goes with it.
#include <set>

#include "target.hpp"
#include "torch/store.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    constexpr TorchClient kClients = 4;
    fuzz::Bytes bytes(data, size);
    TorchStore store;
    std::set<TorchClient> closed;
    for (TorchClient client = 0; client < kClients; ++client) store.connect(client);
    while (!bytes.empty()) {
        const TorchClient client = bytes.byte() % kClients;
        std::string_view portion = bytes.take(bytes.byte());
        while (!portion.empty() && !closed.contains(client)) {
            const TorchActions actions = store.receive(client, portion);
            for (const auto& [who, why] : actions.closed) {
                fuzz::must(!why.empty(), "who is closed is told why");
                closed.insert(who);
            }
            for (const auto& send : actions.sends)
                fuzz::must(send.client < kClients, "an answer is for somebody");
            fuzz::must(actions.taken > 0 || closed.contains(client), "there is progress");
            fuzz::must(store.bytes() <= kMaxTorchBytes, "no more than the limit is kept");
            portion.remove_prefix(std::min(actions.taken, portion.size()));
        }
    }
    for (TorchClient client = 0; client < kClients; ++client) store.disconnect(client);
    return 0;
}
