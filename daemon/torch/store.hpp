// SPDX-License-Identifier: Apache-2.0
//
// The store behind --dp-store=torch: PyTorch's TCPStore server as a pure state machine, apart from libdp's
// (engine/store.hpp). loop/torch_server.hpp moves the bytes and lets in only the step's own processes.
//
// It answers like TCPStoreLibUvBackend.cpp: SET, APPEND, MULTI_SET and QUEUE_PUSH have no reply, a missing
// key has an empty value, and invalid requests close the connection. WATCH_KEY is as in 1.13. Two differences
// are on purpose: any further request ends a client's WAIT (a 1.13 client that gave up on a key says so in no
// other way, and would take the late answer for another request's), and nothing outgrows the limits below.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/request.hpp"

namespace dp {

using TorchClient = uint64_t;

// The maximum of all keys, values, queues, unfinished requests and waits together.
inline constexpr size_t kMaxTorchBytes = size_t{256} << 20;
// The overhead of an entry, so that many small ones are counted for what they cost.
inline constexpr size_t kTorchEntryBytes = 128;
// The maximum reply to one request (MULTI_GET, LIST_KEYS).
inline constexpr size_t kMaxTorchReply = size_t{64} << 20;

// Bytes for a client: `head`, then the value if there is one, which the store and other clients share.
struct TorchSend {
    TorchClient client = 0;
    std::string head;
    std::shared_ptr<const std::string> value;
};

struct TorchActions {
    size_t taken = 0;  // of the bytes that were given
    std::vector<TorchSend> sends;
    std::vector<std::pair<TorchClient, std::string>> closed;  // and why
    bool arrived = false;  // the client's program has opened the store: it has counted itself, once
};

class TorchStore {
 public:
    void connect(TorchClient client);
    void disconnect(TorchClient client);

    // Takes bytes up to the end of the client's next request and handles it. The rest is for another call, so
    // that a client that does not read its replies can be paused in time.
    TorchActions receive(TorchClient client, std::string_view bytes);

    size_t bytes() const { return bytes_; }

 private:
    using Value = std::shared_ptr<const std::string>;
    struct Client {
        TorchReader reader;
        std::set<std::string> awaited;  // not empty: it waits
        std::set<std::string> watched;
        bool arrived = false;
    };

    using ClientsByKey = std::unordered_map<std::string, std::set<TorchClient>>;

    std::map<TorchClient, Client> clients_;
    std::unordered_map<std::string, Value> values_;
    std::unordered_map<std::string, std::deque<Value>> queues_;  // none empty
    ClientsByKey waiting_;
    ClientsByKey watching_;
    size_t bytes_ = 0;
    TorchActions out_;

    enum class Change : char { updated, created, removed, registered, appended };

    void handle(TorchClient id, Client& client, TorchRequest request);
    void close(TorchClient id, std::string why);
    bool take_room(TorchClient id, size_t bytes);
    bool available(const std::string& key) const;
    Value value_of(const std::string& key) const;

    // Both: false if there is no room; the client is then closed. `replace` wakes nobody.
    bool replace(TorchClient id, const std::string& key, std::string value);
    bool put(TorchClient id, const std::string& key, std::string value);
    void append(TorchClient id, const std::string& key, const std::string& more);
    void compare_set(TorchClient id, const TorchRequest& request);
    // What the key's counter will be; none if it cannot be counted, and the client is then closed.
    std::optional<int64_t> counted(TorchClient id, const std::string& key, int64_t amount);
    void add(TorchClient id, const TorchRequest& request);
    void remove(TorchClient id, const std::string& key);
    void wait(TorchClient id, Client& client, std::vector<std::string> keys);
    void wait_for(TorchClient id, Client& client, std::set<std::string> keys);
    void barrier(TorchClient id, Client& client, const TorchRequest& request);
    void stop_waiting(TorchClient id, Client& client);
    void leave(ClientsByKey& clients, const std::string& key, TorchClient id);
    void wake(const std::string& key, bool only_one);
    void watch(TorchClient id, Client& client, const std::string& key);
    void tell_watchers(const std::string& key, Change change, const Value& before, const Value& now);
    void push(TorchClient id, const std::string& key, std::string value);
    void pop(TorchClient id, const std::string& key);
    void get_all(TorchClient id, const std::vector<std::string>& keys);
    void list_keys(TorchClient id);

    void reply(TorchClient id, std::string head, Value value = nullptr);
    void reply_value(TorchClient id, const Value& value);
};

}  // namespace dp
