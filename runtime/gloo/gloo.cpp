// SPDX-License-Identifier: Apache-2.0
//
// libdp-gloo: Gloo's rendezvous on the step's store, and a full mesh on top of it, which ends with the step.
// Used by the trainer and by programs that link Gloo. See dp/gloo.hpp.
#include "dp/gloo.hpp"

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "common/congestion.hpp"
#include "gloo/interruptible.hpp"
#include "libdp/internal.h"

namespace dp {
namespace {

// Once every rank is there, connecting takes milliseconds. This bounds nodes that cannot reach each other.
constexpr std::chrono::milliseconds kConnectTimeout = std::chrono::seconds(30);
// A collective waits for the slowest rank, which may be loading data or evaluating alone. A rank that dies is
// noticed at once through its sockets; this bounds a node that falls silent. PyTorch's Gloo waits as long.
constexpr std::chrono::milliseconds kCollectiveTimeout = std::chrono::minutes(30);

// Gloo's stores report by throwing.
[[noreturn]] void raise(const std::string& what, const Error& error) {
    throw ::gloo::IoException("the step's store, " + what + ": " + error.message);
}

std::vector<std::string> prefixed(const std::string& prefix, const std::vector<std::string>& keys) {
    std::vector<std::string> full;
    full.reserve(keys.size());
    for (const auto& key : keys) full.push_back(prefix + key);
    return full;
}

tl::unexpected<Error> failure(dp_status status, std::string message) {
    dp_internal_fail(status, message.c_str());  // so that dp_last_error has it, too
    return tl::make_unexpected(Error{status, std::move(message)});
}

// Waits until every member is there. Returns a prefix for keys in the store that no other mesh has, not even
// of a group with the same name: collectives are numbered.
Result<std::string> meet(Context& context, const Group& group, bool is_root, Timeout timeout) {
    std::string number;
    if (is_root) {
        const auto count = DP_TRY(context.add(group.name, 1, timeout));
        number = std::to_string(count);
    }
    const auto told = DP_TRY(context.broadcast(group, number, timeout));
    return group.name + "/" + std::string(told.begin(), told.end()) + "/";
}

// One for all meshes of this process: each has a thread that wakes 100 times a second (tcp/loop.cc).
std::shared_ptr<::gloo::transport::Device> device_at(const std::string& address) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<::gloo::transport::Device>> devices;
    const std::lock_guard lock(mutex);
    auto& known = devices[address];
    if (auto device = known.lock()) return device;
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    auto made = ::gloo::transport::tcp::CreateDevice(attributes);
    known = made;
    return made;
}

// The store for one attempt to connect. Once closed, it refuses the calls of a thread that was left behind.
class AttemptStore : public GlooStore {
 public:
    using GlooStore::GlooStore;
    void close() {
        const std::unique_lock lock(mutex_);  // waits for calls in progress
        is_closed_ = true;
    }
    void set(const std::string& key, const std::vector<char>& data) override {
        const auto open = check();
        GlooStore::set(key, data);
    }
    std::vector<char> get(const std::string& key) override {
        const auto open = check();
        return GlooStore::get(key);
    }
    void wait(const std::vector<std::string>& keys) override {
        const auto open = check();
        GlooStore::wait(keys);
    }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
        const auto open = check();
        GlooStore::wait(keys, timeout);
    }

 private:
    std::shared_mutex mutex_;
    bool is_closed_ = false;
    std::shared_lock<std::shared_mutex> check() {
        std::shared_lock lock(mutex_);
        if (is_closed_) throw ::gloo::IoException("this attempt to connect is over");
        return lock;
    }
};

// Gloo took the store by reference before 2025.
template <typename Mesh>
void connect(Mesh& mesh, const std::shared_ptr<AttemptStore>& store,
             std::shared_ptr<::gloo::transport::Device>& device) {
    if constexpr (requires { mesh.connectFullMesh(store, device); })
        mesh.connectFullMesh(store, device);
    else
        mesh.connectFullMesh(*store, device);
}

// Where ranks die and the others go on, a mesh ends whose member has died: none of its collectives can succeed. `members`: none for
// the whole world.
bool ends_a_mesh(const Event& event, const std::vector<std::uint32_t>& members) {
    if (event.kind != DP_EVENT_DEATHS || members.empty()) return true;
    return std::ranges::any_of(
        event.ranks, [&](std::uint32_t dead) { return std::ranges::find(members, dead) != members.end(); });
}

// Connects in a thread of its own, because Gloo cannot be stopped while it waits for a peer that has just died: once the
// step or its generation ends, the thread is left to its time-out.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
    Attempt(std::shared_ptr<::gloo::rendezvous::Context> mesh, std::shared_ptr<AttemptStore> store,
            std::shared_ptr<::gloo::transport::Device> device)
        : mesh_(std::move(mesh)), store_(std::move(store)), device_(std::move(device)) {}

    // Throws what Gloo throws.
    void run(dp::Context& context, const std::vector<std::uint32_t>& members) {
        auto watch = context.on_event([this, members](const Event& event) {
            if (ends_a_mesh(event, members)) end(std::make_exception_ptr(::gloo::IoException(event.reason)));
        });
        std::thread([self = shared_from_this()] {
            try {
                connect(*self->mesh_, self->store_, self->device_);
                self->end(nullptr);
            } catch (...) {
                self->end(std::current_exception());
            }
        }).detach();
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [this] { return has_ended_; });
        if (!failure_) return;
        store_->close();
        std::rethrow_exception(failure_);
    }

 private:
    std::shared_ptr<::gloo::rendezvous::Context> mesh_;
    std::shared_ptr<AttemptStore> store_;
    std::shared_ptr<::gloo::transport::Device> device_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool has_ended_ = false;
    std::exception_ptr failure_;

    void end(std::exception_ptr failure) {
        const std::lock_guard lock(mutex_);
        if (std::exchange(has_ended_, true)) return;
        failure_ = std::move(failure);
        ended_.notify_all();
    }
};

// ---- this process's TCP connections, found by comparing: Gloo does not tell which ones are its own ----

// Descriptor -> inode, so that a reused descriptor number is not taken for the same connection.
using ConnectedSockets = std::map<int, unsigned long>;

unsigned long inode_of(int fd) {
    struct stat found {};
    return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

bool is_connected_tcp(int fd) {
    const auto option = [fd](int name) {
        int value = -1;
        socklen_t size = sizeof value;
        return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
    };
    const int domain = option(SO_DOMAIN);
    if ((domain != AF_INET && domain != AF_INET6) || option(SO_TYPE) != SOCK_STREAM) return false;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

ConnectedSockets connected_sockets() {
    ConnectedSockets found;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
    if (!directory) return found;
    while (const dirent* entry = readdir(directory.get())) {
        const auto fd = parse_number<int>(entry->d_name);
        if (!fd || !is_connected_tcp(*fd)) continue;
        if (const unsigned long inode = inode_of(*fd)) found[*fd] = inode;
    }
    return found;
}

// Calls `act` with each descriptor that is still the same connection.
template <typename Act>
void for_each_open(const ConnectedSockets& sockets, Act act) {
    for (const auto& [fd, inode] : sockets)
        if (inode_of(fd) == inode) act(fd);
}

// A mesh whose waits end with an error when the step or its generation ends: Gloo itself would wait until its
// timeout for a rank that is stopped or cut off. Shutting down its connections wakes what reads and writes them
// itself (Gloo's synchronous mode): those that the process got while it connected (and any that another thread
// opened meanwhile). Closing them keeps Gloo's thread from looking again and again at what still comes for those who wait
// no more.
class Mesh : public ::gloo::rendezvous::Context {
 public:
    using ::gloo::rendezvous::Context::Context;
    ~Mesh() override {
        watch_.reset();  // before the connections are closed and their numbers used again
        if (closing_.joinable()) closing_.join();
    }

    // Call it once the mesh is connected.
    void take(const ConnectedSockets& before) {
        transportContext_ = transport_ = std::make_shared<InterruptibleContext>(std::move(transportContext_));
        sockets_ = connected_sockets();
        std::erase_if(sockets_, [&](const auto& socket) {
            const auto old = before.find(socket.first);
            return old != before.end() && old->second == socket.second;
        });
        for_each_open(sockets_, replace_bbr);
    }

    // Also the transport's timeout, which was set for connecting and applies if a collective gives none
    // (all-reduce does not). And the sockets', for pairs in synchronous mode.
    void set_patience(std::chrono::milliseconds patience) {
        setTimeout(patience);
        transport_->set_patience(patience);
        const timeval most{patience.count() / 1000, patience.count() % 1000 * 1000};
        for_each_open(sockets_, [&](int fd) {
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        });
    }

    // And with any of its members.
    void end_with_the_step(dp::Context& context, const std::vector<std::uint32_t>& members) {
        auto watch = context.on_event([this, members](const Event& event) {
            if (!ends_a_mesh(event, members)) return;
            transport_->interrupt();
            // With a member, others of this process's meshes go on, and a socket may be one of theirs.
            if (event.kind != DP_EVENT_DEATHS)
                for_each_open(sockets_, [](int fd) { shutdown(fd, SHUT_RDWR); });
            // By a thread of its own: each connection waits for Gloo's thread, which wakes every 10 ms.
            if (closing_.joinable()) return;
            try {
                closing_ = std::thread([this] { close_pairs(); });
            } catch (const std::system_error&) {
                // No thread to be had: Gloo's may be busy for nothing until the mesh is destroyed.
            }
        });
        if (watch) watch_ = std::make_unique<EventWatch>(std::move(*watch));
    }

 private:
    std::shared_ptr<InterruptibleContext> transport_;
    ConnectedSockets sockets_;
    std::unique_ptr<EventWatch> watch_;
    std::thread closing_;

    void close_pairs() {
        for (int peer = 0; peer < size; ++peer)
            if (const auto& pair = getPair(peer)) pair->close();
    }
};

}  // namespace

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
    if (auto done = context_.set(prefix_ + key, data); !done) raise("setting " + key, done.error());
}

std::vector<char> GlooStore::get(const std::string& key) {
    auto value = context_.get(prefix_ + key);
    if (!value) raise("getting " + key, value.error());
    return std::move(*value);
}

void GlooStore::wait(const std::vector<std::string>& keys) {
    if (auto done = context_.wait(prefixed(prefix_, keys)); !done) raise("waiting", done.error());
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
    if (auto done = context_.wait(prefixed(prefix_, keys), timeout); !done) raise("waiting", done.error());
}

Result<std::shared_ptr<::gloo::Context>> gloo_mesh(Context& context, const Group& group, Timeout timeout) {
    const dp_world& world = context.world();
    const auto& members = group.members;
    const auto place = std::find(members.begin(), members.end(), world.rank);
    if (!members.empty() && place == members.end())
        return failure(DP_ERROR_INVALID, "rank " + std::to_string(world.rank) +
                                             " is not a member of group \"" + group.name +
                                             "\", whose mesh it asked for");
    const auto rank = members.empty() ? world.rank : static_cast<std::uint32_t>(place - members.begin());
    const auto size = members.empty() ? world.size : static_cast<std::uint32_t>(members.size());
    // Waits for all ranks first: libdp names the missing ranks and their hosts, while Gloo would only say
    // "timed out". The value that they exchange is the place of their addresses in the store.
    const auto place_in_store = DP_TRY(meet(context, {"gloo/" + group.name, members}, rank == 0, timeout));
    try {
        auto device = device_at(world.node_addr);
        const auto store = std::make_shared<AttemptStore>(context, place_in_store);
        auto mesh = std::make_shared<Mesh>(static_cast<int>(rank), static_cast<int>(size));
        const ConnectedSockets before = connected_sockets();
        mesh->setTimeout(timeout.value_or(kConnectTimeout));
        std::make_shared<Attempt>(mesh, store, device)->run(context, members);
        mesh->take(before);
        mesh->set_patience(timeout.value_or(kCollectiveTimeout));
        mesh->end_with_the_step(context, members);
        dp_internal_ready(context.get());
        return mesh;
    } catch (const std::exception& error) {
        // The end of the step or of its generation is the cause, if there is one.
        if (const auto now = context.get(place_in_store, std::chrono::milliseconds(0)); !now)
            if (const dp_status s = now.error().status; s == DP_ERROR_ABORTED || s == DP_ERROR_PEER_LOST)
                return tl::make_unexpected(now.error());
        return failure(DP_ERROR_BACKEND, "Gloo could not connect rank " + std::to_string(world.rank) +
                                             " at " + world.node_addr + " with the other " +
                                             std::to_string(size - 1) + ": " + error.what() +
                                             "; check that the nodes reach each other on that network "
                                             "(--dp-interface)");
    }
}

Result<std::shared_ptr<::gloo::Context>> gloo_full_mesh(Context& context, const std::string& name,
                                                        Timeout timeout) {
    return gloo_mesh(context, {name, {}}, timeout);
}

}  // namespace dp
