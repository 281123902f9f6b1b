// SPDX-License-Identifier: Apache-2.0
//
// The step's metrics, on an abstract unix socket: GET /metrics for Prometheus, one answer per connection, and GET /watch for
// `dpctl exporter`, which gets a frame with a wire::NodeMetrics at once, whenever it writes a byte, and once more when the daemon
// leaves: what a step dies of is known then only.
// Only the step's user, root and the site's exporter are listened to; a library's HTTP server would read from everybody first.
#pragma once

#include <sys/types.h>

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
    // What this node knows by itself.
    using Measure = std::function<wire::NodeMetrics()>;
    // `exporter`: whom it answers beside its own user and root. Listens beside the ranks' socket. If it cannot (the name is taken), it says so.
    MetricsServer(event_base* base, int ranks_socket, RejectedPeers& rejected, uid_t exporter,
                  Measure measure, OnAsk on_ask);

    // Whether the connection is one of its own, and still there.
    bool answer(uint64_t connection, const wire::ToRank& message);
    // The daemon leaves. What a watcher does not take at once is lost.
    void finish();

 private:
    struct Client {
        MetricsServer* server = nullptr;
        uint64_t id = 0;
        bool asked = false;
        bool answered = false;
        bool watches = false;
        BufferPtr buffer;
        std::optional<Timer> deadline;
    };

    event_base* base_;
    RejectedPeers& rejected_;
    uid_t exporter_;
    Measure measure_;
    OnAsk on_ask_;
    std::string step_;
    Fd socket_;
    Numbered<Client> clients_;
    std::optional<Listener> listener_;

    static Client& client_at(void* pointer) { return *static_cast<Client*>(pointer); }
    void accept(Fd socket);
    void read(Client& client);
    void tell(Client& client) const;
    void respond(Client& client, const char* status, const std::string& body);
};

}  // namespace dp
