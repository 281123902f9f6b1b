// SPDX-License-Identifier: Apache-2.0
#include "loop/torch_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "loop/tcp.hpp"

namespace dp {
namespace {

// The other end's owner stays valid as long as this connection has neither ended nor been reset: until then
// nobody else can have the other end's address and port.
bool is_established(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

TorchServer::TorchServer(event_base* base, int socket, uint32_t world_size, RejectedPeers& rejected,
                         OnConnection on_connection, OnArrival on_arrival)
    : base_(base),
      most_clients_(kMoreTorchClients + kTorchClientsARank * world_size),
      rejected_(rejected),
      on_connection_(std::move(on_connection)),
      on_arrival_(std::move(on_arrival)),
      clients_(base),
      listener_(base, socket, rejected, [this](Fd fd) { accept(std::move(fd)); }) {}

void TorchServer::accept(Fd socket) {
    const Endpoint client = peer_end(socket.get());
    const Endpoint server = local_end(socket.get());
    wire::WhoOwns asked;
    const uint64_t number = ++last_number;
    asked.set_connection(number);
    asked.set_client_address(client.address);
    asked.set_client_port(client.port);
    asked.set_server_address(server.address);
    asked.set_server_port(server.port);
    unauthorized_[number] = {std::move(socket), client.address};
    on_connection_(asked);
}

void TorchServer::decide(const PeerAuthorization::Decision& decision) {
    auto found = unauthorized_.extract(decision.connection);
    if (!found) return;
    Stranger& stranger = found.mapped();
    if (!decision.refused.empty())
        refuse(stranger.address, decision.refused);
    else if (clients_.size() >= most_clients_)
        refuse(stranger.address, "there are " + std::to_string(most_clients_) + " of this step already");
    else
        admit(decision.node, std::move(stranger));
}

void TorchServer::refuse(const std::string& address, const std::string& why) {
    rejected_.mention("a connection from " + address + " to PyTorch's store (MASTER_PORT)", why);
}

void TorchServer::admit(uint32_t node, Stranger stranger) {
    if (!is_established(stranger.socket.get())) return;  // it looked and went, like a port scan
    const int on = 1;
    setsockopt(stranger.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Client& client = clients_.add();
    client.server = this;
    client.address = std::move(stranger.address);
    client.node = node;
    client.buffer.reset(bufferevent_socket_new(base_, stranger.socket.release(), BEV_OPT_CLOSE_ON_FREE));
    bufferevent_setcb(
        client.buffer.get(), on_bytes, on_bytes,
        [](bufferevent*, short what, void* pointer) {
            auto* ended = static_cast<Client*>(pointer);
            if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) ended->server->drop(*ended);
        },
        &client);
    bufferevent_setwatermark(client.buffer.get(), EV_WRITE, kTorchUnsent / 2, 0);
    store_.connect(client.id);
    bufferevent_enable(client.buffer.get(), EV_READ | EV_WRITE);
}

void TorchServer::on_bytes(bufferevent*, void* pointer) {
    auto* client = static_cast<Client*>(pointer);
    client->server->serve(*client);
}

// Handles the complete requests, but no more than the client reads replies.
void TorchServer::serve(Client& client) {
    evbuffer* input = bufferevent_get_input(client.buffer.get());
    evbuffer_iovec chunk{};
    while (clients_.find(client.id) && unsent(client.buffer) < kTorchUnsent &&
           evbuffer_get_length(input) > 0 && evbuffer_peek(input, -1, nullptr, &chunk, 1) > 0) {
        const TorchActions actions =
            store_.receive(client.id, {static_cast<const char*>(chunk.iov_base), chunk.iov_len});
        evbuffer_drain(input, actions.taken);
        for (const auto& send : actions.sends)
            if (Client* to = clients_.find(send.client)) write(*to, send);
        for (const auto& [id, why] : actions.closed) {
            Client* closed = clients_.find(id);
            if (!closed) continue;
            refuse(closed->address, why);
            drop(*closed);
        }
        if (actions.arrived) on_arrival_(client.node);
    }
    if (!clients_.find(client.id)) return;
    // By disabling, not by a watermark: libevent would call again and again if a call-back leaves too much.
    if (unsent(client.buffer) < kTorchUnsent)
        bufferevent_enable(client.buffer.get(), EV_READ);
    else
        bufferevent_disable(client.buffer.get(), EV_READ);
}

void TorchServer::write(Client& client, const TorchSend& send) {
    evbuffer* output = bufferevent_get_output(client.buffer.get());
    evbuffer_add(output, send.head.data(), send.head.size());
    // All clients that get a value share it, and an old value lives until the last has read it.
    add_shared(client.buffer, send.value);
    if (unsent(client.buffer) <= kMaxTorchUnsent) return;
    refuse(client.address, "it does not read what it asked for");
    drop(client);
}

void TorchServer::drop(Client& client) {
    bufferevent_disable(client.buffer.get(), EV_READ | EV_WRITE);
    store_.disconnect(client.id);
    clients_.drop(client.id);
}

}  // namespace dp
