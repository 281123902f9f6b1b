// SPDX-License-Identifier: Apache-2.0
#include "loop/keeper_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/unix_socket.hpp"
#include "common/keeper.hpp"

namespace dp {
namespace {

// A keeper reads its two packets a generation at once; the kernel's buffer takes hundreds.
void send_packet(const Fd& socket, std::string_view packet) {
    send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

KeeperServer::KeeperServer(event_base* base, int socket, size_t ranks, RejectedPeers& rejected,
                           KeeperOf keeper_of, OnEvent on_event)
    : base_(base),
      ranks_(ranks),
      rejected_(rejected),
      keeper_of_(std::move(keeper_of)),
      on_event_(std::move(on_event)),
      clients_(base),
      listener_(base, socket, rejected, [this](Fd fd) { accept(std::move(fd)); }) {}

void KeeperServer::accept(Fd socket) {
    const ucred peer = peer_of(socket.get()).value_or(ucred{0, static_cast<uid_t>(-1), 0});
    if (peer.uid != getuid()) {
        rejected_.mention("a keeper's connection of user id " + std::to_string(peer.uid) + " (pid " +
                              std::to_string(peer.pid) + ")",
                          "this step belongs to user id " + std::to_string(getuid()));
        return;
    }
    Client& client = clients_.add();
    client.pid = peer.pid;
    client.server = this;
    client.socket = std::move(socket);
    client.event.reset(event_new(
        base_, client.socket.get(), EV_READ | EV_PERSIST,
        [](int, short, void* pointer) {
            auto* ready = static_cast<Client*>(pointer);
            ready->server->read(*ready);
        },
        &client));
    event_add(client.event.get(), nullptr);
}

void KeeperServer::read(Client& client) {
    for (;;) {
        std::array<char, kMaxControl> packet;
        const ssize_t size = recv(client.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (size <= 0) return drop(client);
        const auto event = read_control({packet.data(), static_cast<size_t>(size)});
        if (!event) return refuse(client, event.error().message);
        if (!handle(client, *event)) return;
    }
}

// False: the client is gone.
bool KeeperServer::handle(Client& client, const ControlEvent& event) {
    if (event.kind == ControlEvent::Kind::environment && event.local_rank < ranks_) {
        on_event_(event);
        if (client.local_rank) return true;
        drop(client);  // it has told all that it may
        return false;
    }
    if (event.kind != ControlEvent::Kind::keep) {
        const bool is_task = event.kind == ControlEvent::Kind::task;
        if (!client.local_rank || event.local_rank != *client.local_rank || (is_task && event.value <= 1)) {
            refuse(client, "it speaks for a rank that is not its own");
            return false;
        }
        on_event_(event);
        return true;
    }
    if (client.local_rank || event.local_rank >= ranks_ || client.pid <= 0 ||
        client.pid != keeper_of_(event.local_rank) || !present_.insert(event.local_rank).second) {
        refuse(client, "it is not the task of that rank");
        return false;
    }
    client.local_rank = event.local_rank;
    if (!last_word_.empty()) send_packet(client.socket, last_word_);
    return true;
}

void KeeperServer::refuse(Client& client, const std::string& why) {
    rejected_.mention("a rank's keeper (pid " + std::to_string(client.pid) + ")", why);
    drop(client);
}

void KeeperServer::drop(Client& client) {
    event_del(client.event.get());
    clients_.drop(client.id);
}

void KeeperServer::begin_life(NodePlan plan, const std::set<uint32_t>& survivors) {
    std::string packet = write_plan(plan);
    if (packet.size() > kMaxControl) {
        plan.hosts = plan.ranks_per_host = "";  // a rank can do without a hostfile
        packet = write_plan(plan);
    }
    tell_all(packet, survivors);
}

void KeeperServer::no_other_life() {
    tell_all(std::string(kNoOtherLife));
}

void KeeperServer::tell_all(const std::string& packet, const std::set<uint32_t>& except) {
    last_word_ = packet;
    for (auto& [id, client] : clients_)
        if (client.local_rank && !except.contains(*client.local_rank)) send_packet(client.socket, packet);
}

}  // namespace dp
