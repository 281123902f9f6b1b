// SPDX-License-Identifier: Apache-2.0
#include "loop/metrics_server.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/errno_text.hpp"
#include "base/unix_socket.hpp"
#include "common/socket_names.hpp"
#include "engine/metrics.hpp"
#include "framing.hpp"

namespace dp {
namespace {

constexpr int kBacklog = 8;

std::string name_of(int socket) {
    sockaddr_un address{};
    socklen_t size = sizeof address;
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
    const size_t path = size - std::min<size_t>(size, offsetof(sockaddr_un, sun_path) + 1);
    return std::string(address.sun_path + 1, path);
}

}  // namespace

MetricsServer::MetricsServer(event_base* base, int ranks_socket, RejectedPeers& rejected, uid_t exporter,
                             Measure measure, OnAsk on_ask)
    : base_(base),
      rejected_(rejected),
      exporter_(exporter),
      measure_(std::move(measure)),
      on_ask_(std::move(on_ask)),
      clients_(base) {
    if (const auto ranks = parse_ranks_socket_name(name_of(ranks_socket))) step_ = ranks->step;
    const std::string name = step_.empty() ? "" : metrics_socket_name(step_);
    if (const auto address = AbstractAddress::of(name)) socket_ = address->listen(kBacklog);
    if (socket_)
        listener_.emplace(base, socket_.get(), rejected, [this](Fd fd) { accept(std::move(fd)); });
    else
        log_line("this step has no metrics: cannot listen at @" + name + ": " + errno_text(errno));
}

void MetricsServer::accept(Fd socket) {
    const auto peer = peer_of(socket.get());
    if (!peer || (peer->uid != getuid() && peer->uid != 0 && peer->uid != exporter_) ||
        clients_.size() >= kMaxMetricsClients)
        return;
    Client& client = clients_.add();
    client.server = this;
    client.deadline.emplace(base_, [this, id = client.id] { clients_.drop(id); });
    client.deadline->after(kHttpTimeout);
    client.buffer.reset(bufferevent_socket_new(base_, socket.release(), BEV_OPT_CLOSE_ON_FREE));
    bufferevent_setwatermark(client.buffer.get(), EV_READ, 0, kMaxHttpRequest);
    bufferevent_setcb(
        client.buffer.get(), [](bufferevent*, void* self) { client_at(self).server->read(client_at(self)); },
        [](bufferevent*, void* self) {
            if (client_at(self).answered) client_at(self).server->clients_.drop(client_at(self).id);
        },
        [](bufferevent*, short what, void* self) {
            // A client may half-close after its request and still read.
            if ((what & BEV_EVENT_EOF) == 0 || !client_at(self).asked || client_at(self).watches)
                client_at(self).server->clients_.drop(client_at(self).id);
        },
        &client);
    bufferevent_enable(client.buffer.get(), EV_READ | EV_WRITE);
}

void MetricsServer::read(Client& client) {
    evbuffer* input = bufferevent_get_input(client.buffer.get());
    if (client.watches) {
        evbuffer_drain(input, evbuffer_get_length(input));
        return tell(client);
    }
    if (client.asked) return;
    std::string request(evbuffer_get_length(input), '\0');
    evbuffer_copyout(input, request.data(), request.size());
    if (request.find("\r\n\r\n") == std::string::npos && request.size() < kMaxHttpRequest) return;
    client.asked = true;
    evbuffer_drain(input, request.size());
    if (request.starts_with("GET /watch HTTP/1.")) {
        client.watches = true;
        client.deadline.reset();
        tell(client);
    } else if (request.starts_with("GET /metrics HTTP/1.") || request.starts_with("GET / HTTP/1.")) {
        on_ask_(client.id);
    } else {
        respond(client, "404 Not Found", "GET /metrics is all there is\n");
    }
}

bool MetricsServer::answer(uint64_t connection, const wire::ToRank& message) {
    Client* client = clients_.find(connection);
    if (!client) return false;
    if (message.has_status()) {
        wire::NodeMetrics metrics = measure_();
        *metrics.mutable_status() = message.status();
        const StepMetrics step{label("step", step_), &metrics};
        MetricsWriter out(MetricsFormat::prometheus);
        write_steps({&step, 1}, out);
        respond(*client, "200 OK", out.finish());
        return true;
    }
    respond(*client, "503 Service Unavailable", message.reply().error() + "\n");
    return true;
}

// Who does not take the last answer gets no other one.
void MetricsServer::tell(Client& client) const {
    if (unsent(client.buffer) > 0) return;
    const std::string frame = to_frame(measure_());
    bufferevent_write(client.buffer.get(), frame.data(), frame.size());
}

void MetricsServer::finish() {
    std::string frame;
    for (auto& [id, client] : clients_) {
        if (!client.watches) continue;
        const int socket = bufferevent_getfd(client.buffer.get());
        if (unsent(client.buffer) > 0) evbuffer_write(bufferevent_get_output(client.buffer.get()), socket);
        if (unsent(client.buffer) > 0) continue;
        if (frame.empty()) {
            wire::NodeMetrics last = measure_();
            last.set_is_last(true);
            frame = to_frame(last);
        }
        send(socket, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

void MetricsServer::respond(Client& client, const char* status, const std::string& body) {
    client.answered = true;
    const std::string text =
        std::string("HTTP/1.1 ") + status +
        "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
    bufferevent_write(client.buffer.get(), text.data(), text.size());
}

}  // namespace dp
