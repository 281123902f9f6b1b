// SPDX-License-Identifier: Apache-2.0
//
// The step's metrics for Prometheus: GET /metrics on an abstract unix socket, one answer per connection.
// Only the step's user and root are listened to; a library's HTTP server would read from everybody first.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "loop/buffers.hpp"
#include "loop/listener.hpp"
#include "loop/numbered.hpp"

namespace dp {

inline constexpr size_t kMaxMetricsClients = 16;
inline constexpr size_t kMaxHttpRequest = 4096;
// From the accept to the last byte of the answer.
inline constexpr std::chrono::seconds kHttpTimeout{5};

class MetricsServer {
 public:
    // Asks for the step's status; `answer` delivers it, at once or later.
    using OnAsk = std::function<void(uint64_t connection)>;
    // Listens beside the ranks' socket. If it cannot (the name is taken), it says so.
    MetricsServer(event_base* base, int ranks_socket, RejectedPeers& rejected, OnAsk on_ask);

    // Whether the connection is one of its own, and still there.
    bool answer(uint64_t connection, const wire::ToRank& message);

 private:
    struct Client {
        MetricsServer* server = nullptr;
        uint64_t id = 0;
        bool asked = false;
        bool answered = false;
        BufferPtr buffer;
        std::optional<Timer> deadline;
    };

    event_base* base_;
    RejectedPeers& rejected_;
    OnAsk on_ask_;
    std::string step_;
    Fd socket_;
    Numbered<Client> clients_;
    std::optional<Listener> listener_;

    static Client& client_at(void* pointer) { return *static_cast<Client*>(pointer); }
    void accept(Fd socket);
    void read(Client& client);
    void respond(Client& client, const char* status, const std::string& body);
};

}  // namespace dp
