// SPDX-License-Identifier: Apache-2.0
#include "loop/torch_server.hpp"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "loop/peer_address.hpp"
#include "loop/shared_bytes.hpp"

namespace dp {
namespace {

SocketEnds ends_of(int fd) {
    return {peer_address(fd), peer_port(fd), local_address(fd), local_port(fd)};
}

// The other end's owner stays valid as long as this connection has neither ended nor been reset: until then
// nobody else can have the other end's address and port.
bool is_established(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

size_t unsent(bufferevent* buffer) {
    return evbuffer_get_length(bufferevent_get_output(buffer));
}

}  // namespace

TorchServer::TorchServer(event_base* base, int socket, uint32_t world_size, RejectedPeers& rejected,
                         OnConnection on_connection, OnArrival on_arrival)
    : base_(base),
      most_clients_(kMoreTorchClients + kTorchClientsARank * world_size),
      rejected_(rejected),
      on_connection_(std::move(on_connection)),
      on_arrival_(std::move(on_arrival)),
      listener_(
          base, socket, [this](Fd fd) { accept(std::move(fd)); },
          [this](int error) { rejected_.no_room(error); }) {}

void TorchServer::accept(Fd socket) {
    const SocketEnds ends = ends_of(socket.get());
    const uint64_t id = next_++;
    unauthorized_[id] = {std::move(socket), ends.client};
    on_connection_(id, ends);
}

void TorchServer::decide(const PeerAuthorization::Decision& decision) {
    auto found = unauthorized_.find(decision.connection);
    if (found == unauthorized_.end()) return;
    Stranger stranger = std::move(found->second);
    unauthorized_.erase(found);
    if (!decision.refused.empty())
        refuse(stranger, decision.refused);
    else if (clients_.size() - over_.size() >= most_clients_)
        refuse(stranger, "there are " + std::to_string(most_clients_) + " of this step already");
    else
        admit(decision.connection, decision.node, std::move(stranger));
}

void TorchServer::refuse(const Stranger& stranger, const std::string& why) {
    mention(stranger.address, why);
}

void TorchServer::mention(const std::string& address, const std::string& why) {
    rejected_.mention("a connection from " + address + " to PyTorch's store (MASTER_PORT)", why);
}

void TorchServer::admit(uint64_t id, uint32_t node, Stranger stranger) {
    if (!is_established(stranger.socket.get())) return;  // it looked and went, like a port scan
    const int on = 1;
    setsockopt(stranger.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Client& client = clients_[id];
    client.server = this;
    client.id = id;
    client.address = std::move(stranger.address);
    client.node = node;
    client.buffer.reset(bufferevent_socket_new(base_, stranger.socket.release(), BEV_OPT_CLOSE_ON_FREE));
    bufferevent_setcb(client.buffer.get(), on_bytes, on_bytes, on_event, &client);
    bufferevent_setwatermark(client.buffer.get(), EV_WRITE, kTorchUnsent / 2, 0);
    store_.connect(id);
    bufferevent_enable(client.buffer.get(), EV_READ | EV_WRITE);
}

// Handles the complete requests, but no more than the client reads replies.
void TorchServer::serve(Client& client) {
    evbuffer* input = bufferevent_get_input(client.buffer.get());
    evbuffer_iovec chunk{};
    while (!over_.contains(client.id) && unsent(client.buffer.get()) < kTorchUnsent &&
           evbuffer_get_length(input) > 0 && evbuffer_peek(input, -1, nullptr, &chunk, 1) > 0) {
        const TorchActions actions =
            store_.receive(client.id, {static_cast<const char*>(chunk.iov_base), chunk.iov_len});
        evbuffer_drain(input, actions.taken);
        perform(actions);
        if (actions.arrived) on_arrival_(client.node);
    }
    if (over_.contains(client.id)) return;
    // By disabling, not by a watermark: libevent would call again and again if a call-back leaves too much.
    if (unsent(client.buffer.get()) < kTorchUnsent)
        bufferevent_enable(client.buffer.get(), EV_READ);
    else
        bufferevent_disable(client.buffer.get(), EV_READ);
}

void TorchServer::perform(const TorchActions& actions) {
    for (const auto& send : actions.sends) write(send);
    for (const auto& [id, why] : actions.closed) {
        auto found = clients_.find(id);
        if (found == clients_.end() || over_.contains(id)) continue;
        mention(found->second.address, why);
        drop(id);
    }
}

void TorchServer::write(const TorchSend& send) {
    auto found = clients_.find(send.client);
    if (found == clients_.end() || over_.contains(send.client)) return;
    bufferevent* buffer = found->second.buffer.get();
    evbuffer* output = bufferevent_get_output(buffer);
    evbuffer_add(output, send.head.data(), send.head.size());
    // All clients that get a value share it, and an old value lives until the last has read it.
    add_shared(output, send.value);
    if (unsent(buffer) > kMaxTorchUnsent) {
        mention(found->second.address, "it does not read what it asked for");
        drop(send.client);
    }
}

void TorchServer::drop(TorchClient id) {
    auto found = clients_.find(id);
    if (found == clients_.end() || !over_.insert(id)) return;
    bufferevent_disable(found->second.buffer.get(), EV_READ | EV_WRITE);
    store_.disconnect(id);
}

void TorchServer::on_bytes(bufferevent*, void* pointer) {
    auto* client = static_cast<Client*>(pointer);
    client->server->serve(*client);
}

void TorchServer::on_event(bufferevent*, short what, void* pointer) {
    auto* client = static_cast<Client*>(pointer);
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) client->server->drop(client->id);
}

}  // namespace dp
