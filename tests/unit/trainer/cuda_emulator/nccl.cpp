// SPDX-License-Identifier: Apache-2.0
//
// NCCL between emulated GPUs, as far as libdp-nccl and the trainer call it. Whoever makes the unique id serves: it
// gets what each rank brings to a collective, in the order of the ranks, and sends all of them the result. A message between two
// ranks ends on both when both have come to it, as NCCL's may, and what one communicator has queued is done one after another.
//
// A collective goes on after its call, and its end is like NCCL's also where a rank dies: the others wait for it until
// their communicator is revoked or aborted. Then it ends as if it had succeeded and leaves garbage; and a rank that has
// aborted gives garbage to those that have not.
//
// DP_CUDA_EMULATOR_NCCL_DIES=RANK/NUMBER/BYTES: that rank's process dies when it comes to the collective of that number, from 1, among
// those of so many bytes.
// DP_CUDA_EMULATOR_NCCL_COUNTS: each collective is told on the standard error. DP_CUDA_EMULATOR_NCCL_HANGS: a communicator cannot be
// finalized, and its abort hangs. DP_CUDA_EMULATOR_NCCL_NO_MEMORY=NUMBER: that collective and later ones fail for lack of memory.
// DP_CUDA_EMULATOR_NCCL_VERSION: such as 21701.
//
// DP_CUDA_EMULATOR_NCCL_MIB=NUMBER: a communicator allocates so much of the GPU's memory when it is made, and again as it first comes to
// each of what NCCL has ways of its own for: small sums, large ones, gathers, scatters, broadcasts, and messages with each peer.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <nccl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "activity.hpp"
#include "graphs.hpp"
#include "races.hpp"
#include "streams.hpp"

namespace dp::cuda_emulator {
namespace {

constexpr char kGarbage = 0x55;  // a finite number in every type

std::atomic<bool> lacks_memory = false;

enum class Kind : std::uint32_t { hello, reduce, scatter, gather, broadcast, send, receive, aborted };

// What a rank sends before its bytes.
struct Head {
    Kind kind = Kind::hello;
    std::uint32_t rank = 0;  // or the root of a broadcast, or who sends or receives with it
    std::uint32_t size = 0;  // or the bytes to receive
    ncclDataType_t type = ncclChar;
    ncclRedOp_t reduction = ncclSum;
    std::uint64_t bytes = 0;  // that follow
};

struct Id {
    in_addr address;
    in_port_t port;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

// False if the other end is gone.
bool send_all(int socket, const void* from, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(from); bytes > 0;) {
        const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
    return true;
}
bool receive_all(int socket, void* to, std::size_t bytes) {
    for (char* at = static_cast<char*>(to); bytes > 0;) {
        const ssize_t got = recv(socket, at, bytes, 0);
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

void send_at_once(int socket) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

struct Bf16 {
    std::uint16_t bits = 0;

    float wide() const {
        const auto all = static_cast<std::uint32_t>(bits) << 16;
        float number;
        std::memcpy(&number, &all, sizeof number);
        return number;
    }
    // Rounded at each rank, to nearest, as NCCL does.
    Bf16& operator+=(const Bf16& other) {
        const float sum = wide() + other.wide();
        std::uint32_t all;
        std::memcpy(&all, &sum, sizeof all);
        bits = static_cast<std::uint16_t>((all + 0x7FFF + ((all >> 16) & 1)) >> 16);
        return *this;
    }
    bool operator<(const Bf16& other) const { return wide() < other.wide(); }
};

std::size_t size_of(ncclDataType_t type) {
    return type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 8;
}

// ---- the server, in the process that made the id

template <typename Number>
void reduce_into(std::vector<char>& result, const std::vector<char>& more, bool is_max) {
    for (std::size_t at = 0; at + sizeof(Number) <= result.size(); at += sizeof(Number)) {
        Number a, b;
        std::memcpy(&a, result.data() + at, sizeof a);
        std::memcpy(&b, more.data() + at, sizeof b);
        // 64-bit numbers wrap, as on a GPU.
        if (is_max)
            a = std::max(a, b);
        else
            a += b;
        std::memcpy(result.data() + at, &a, sizeof a);
    }
}

std::vector<char> combined(const std::vector<Head>& heads, std::vector<std::vector<char>>& brought) {
    const Head& head = heads.front();
    if (head.kind == Kind::broadcast) return brought[head.rank];
    std::vector<char> result = brought.front();
    for (std::size_t rank = 1; rank < brought.size(); ++rank) {
        const bool is_max = head.reduction == ncclMax;
        if (head.kind == Kind::gather)
            result.insert(result.end(), brought[rank].begin(), brought[rank].end());
        else if (head.type == ncclFloat32)
            reduce_into<float>(result, brought[rank], is_max);
        else if (head.type == ncclBfloat16)
            reduce_into<Bf16>(result, brought[rank], is_max);
        else if (head.type == ncclFloat64)
            reduce_into<double>(result, brought[rank], is_max);
        else
            reduce_into<std::uint64_t>(result, brought[rank], is_max);
    }
    return result;
}

// A collective begins at this rank. Returns false if it fails.
bool begin(Kind kind, std::uint64_t bytes, int rank) {
    static std::atomic<int> number = 0;
    const int now = ++number;
    if (std::getenv("DP_CUDA_EMULATOR_NCCL_COUNTS") != nullptr)
        std::fprintf(stderr, "emulated NCCL: rank %d, %d: kind %u, %llu bytes\n", rank, now,
                     static_cast<unsigned>(kind), static_cast<unsigned long long>(bytes));
    const char* dies = std::getenv("DP_CUDA_EMULATOR_NCCL_DIES");
    static std::mutex mutex;
    static std::map<std::uint64_t, int> of_that_size;
    std::lock_guard lock(mutex);
    const int again = ++of_that_size[bytes];
    if (dies != nullptr &&
        std::to_string(rank) + "/" + std::to_string(again) + "/" + std::to_string(bytes) == dies)
        std::raise(SIGKILL);
    const char* fails = std::getenv("DP_CUDA_EMULATOR_NCCL_NO_MEMORY");
    return fails == nullptr || now < std::atoi(fails);
}

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::reduce:
            return "an all-reduce";
        case Kind::scatter:
            return "a reduce-scatter";
        case Kind::gather:
            return "an all-gather";
        case Kind::broadcast:
            return "a broadcast";
        default:
            return "a message";
    }
}

// What NCCL allocates for apart from others.
std::string way_of(const Head& head) {
    constexpr std::uint64_t kLarge = 1 << 20;
    const std::string name = name_of(head.kind);
    if (head.kind == Kind::reduce) return name + (head.bytes < kLarge ? ", small" : ", large");
    const bool is_message = head.kind == Kind::send || head.kind == Kind::receive;
    return is_message
               ? name + " " + std::to_string(static_cast<int>(head.kind)) + " " + std::to_string(head.rank)
               : name;
}

bool is_message(Kind kind) {
    return kind == Kind::send || kind == Kind::receive;
}

// What that rank says and brings.
bool receive(int socket, std::size_t rank, Head& head, std::vector<char>& brought) {
    if (!receive_all(socket, &head, sizeof head)) return false;
    brought.resize(head.kind == Kind::broadcast && head.rank != rank ? 0 : head.bytes);
    return receive_all(socket, brought.data(), brought.size());
}

// Gives garbage for all that comes, after a rank has aborted.
void give_garbage(std::vector<int> ranks, const std::vector<bool>& waits, const std::vector<Head>& heads) {
    const auto answer = [](int socket, const Head& head, std::size_t size) {
        std::size_t bytes = head.bytes * (head.kind == Kind::gather ? size : 1);
        if (head.kind == Kind::scatter) bytes /= size;
        if (head.kind == Kind::send) bytes = 0;
        if (head.kind == Kind::receive) bytes = head.size;
        const std::vector<char> garbage(bytes, kGarbage);
        const Head result{.kind = head.kind, .bytes = garbage.size()};
        send_all(socket, &result, sizeof result);
        send_all(socket, garbage.data(), garbage.size());
    };
    const std::size_t size = ranks.size();
    for (std::size_t rank = 0; rank < size; ++rank)
        if (waits[rank]) answer(ranks[rank], heads[rank], size);
    std::vector<pollfd> all;
    for (const int socket : ranks) all.push_back({socket, POLLIN, 0});
    while (std::ranges::any_of(all, [](const pollfd& one) { return one.fd >= 0; })) {
        poll(all.data(), all.size(), -1);
        for (std::size_t rank = 0; rank < size; ++rank) {
            pollfd& one = all[rank];
            if (one.fd < 0 || one.revents == 0) continue;
            Head head;
            std::vector<char> bytes;
            if (receive(one.fd, rank, head, bytes) && head.kind != Kind::aborted)
                answer(one.fd, head, size);
            else
                one.fd = -1;
        }
    }
}

void serve(int listener) {
    std::vector<int> ranks;
    for (std::size_t here = 0; ranks.empty() || here < ranks.size(); ++here) {
        const int one = accept(listener, nullptr, nullptr);
        Head hello;
        if (one < 0 || !receive_all(one, &hello, sizeof hello)) return;
        ranks.resize(hello.size, -1);
        ranks[hello.rank] = one;
        send_at_once(one);
    }
    close(listener);
    const Head ready;
    for (const int socket : ranks) send_all(socket, &ready, sizeof ready);
    std::vector<Head> heads(ranks.size());
    std::vector<std::vector<char>> brought(ranks.size());
    std::vector<bool> waits(ranks.size());
    std::vector<pollfd> all;
    for (const int socket : ranks) all.push_back({socket, POLLIN, 0});
    const auto answer = [&](std::size_t rank, const std::vector<char>& result) {
        const Head head{.kind = heads[rank].kind, .bytes = result.size()};
        waits[rank] = false;
        send_all(ranks[rank], &head, sizeof head);
        send_all(ranks[rank], result.data(), result.size());
    };
    for (;;) {
        poll(all.data(), all.size(), -1);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            if (all[rank].revents == 0) continue;
            Head head;
            std::vector<char> bytes;
            if (!receive(ranks[rank], rank, head, bytes)) {
                all[rank].fd = -1;  // the others wait for it for ever
                continue;
            }
            if (head.kind == Kind::aborted) return give_garbage(ranks, waits, heads);
            heads[rank] = head;
            brought[rank] = std::move(bytes);
            waits[rank] = true;
            if (!is_message(head.kind)) continue;
            const std::size_t other = head.rank;
            if (!waits[other] || !is_message(heads[other].kind) || heads[other].rank != rank ||
                heads[other].kind == head.kind)
                continue;
            const std::size_t sender = head.kind == Kind::send ? rank : other;
            answer(rank + other - sender, brought[sender]);
            answer(sender, {});
        }
        const auto is_collective = [](const Head& head) { return !is_message(head.kind); };
        if (!std::ranges::all_of(waits, std::identity()) || !std::ranges::all_of(heads, is_collective))
            continue;
        const std::vector<char> result = combined(heads, brought);
        const bool is_divided = heads.front().kind == Kind::scatter;
        const auto part = static_cast<std::ptrdiff_t>(result.size() / (is_divided ? ranks.size() : 1));
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            const auto first = result.begin() + (is_divided ? static_cast<std::ptrdiff_t>(rank) * part : 0);
            answer(rank, {first, first + part});
        }
    }
}

// This machine's, as other nodes reach it.
in_addr own_address() {
    in_addr found{htonl(INADDR_LOOPBACK)};
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
        const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
        if (ntohl(address.s_addr) >> 24 != IN_LOOPBACKNET) found = address;
    }
    freeifaddrs(all);
    return found;
}

}  // namespace
}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

// A thread of it does what is queued.
struct ncclComm {
    ncclComm(const ncclUniqueId& id, int size, int rank) : rank_(rank), size_(size) {
        std::memcpy(&id_, &id, sizeof id_);
        worker_ = std::thread([this] { work(); });
    }
    ~ncclComm() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        worker_.join();
        close(socket_);
        for (const auto& [which, memory] : ways_) cudaFree(memory);
    }

    // NCCL allocates what a way needs when it first takes it (from 2.22 on; before, all when a communicator is made).
    bool make_way(const std::string& which) {
        static const char* const said = std::getenv("DP_CUDA_EMULATOR_NCCL_MIB");
        if (said == nullptr) return true;
        const std::lock_guard lock(mutex_);
        void*& memory = ways_[which];
        return memory != nullptr || cudaMalloc(&memory, std::stoull(said) << 20) == cudaSuccess;
    }

    ncclResult_t state() const { return is_connected_ || is_aborted_ ? ncclSuccess : ncclInProgress; }

    // `head.bytes`: of what this rank brings. The result has `size` bytes.
    ncclResult_t queue(const Head& head, const void* from, void* to, std::size_t size, cudaStream_t stream) {
        if (refuse_on(stream) != cudaSuccess) return ncclInvalidUsage;
        if (!begin(head.kind, head.bytes, rank_)) return ncclUnhandledCudaError;
        if (!make_way(way_of(head))) {
            lacks_memory = true;
            return ncclUnhandledCudaError;
        }
        count_launch();
        const bool brings = head.kind != Kind::broadcast || head.rank == static_cast<unsigned>(rank_);
        order_work(stream, {name_of(head.kind)}, {{from, brings ? head.bytes : 0, false}, {to, size, true}},
                   this);
        const std::lock_guard lock(mutex_);
        works_.push_back({head, from, to, size, stream, begin_work(stream), {Did::kernel, stream}});
        changed_.notify_all();
        return ncclSuccess;
    }

    void abort() {
        if (is_aborted_.exchange(true)) return;
        const Head said{.kind = Kind::aborted};
        const std::lock_guard lock(sending_);
        send_all(socket_, &said, sizeof said);
        shutdown(socket_, SHUT_RDWR);
    }

    void wait_until_idle() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return works_.empty(); });
    }

    int rank() const { return rank_; }
    int size() const { return size_; }

 private:
    struct Work {
        Head head;
        const void* from;
        void* to;
        std::size_t size;
        cudaStream_t stream;
        After after;
        Activity activity;
    };

    const int rank_, size_;
    Id id_{};
    const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::atomic<bool> is_connected_ = false, is_aborted_ = false;
    std::mutex sending_, mutex_;
    std::condition_variable changed_;
    std::deque<Work> works_;
    bool ends_ = false;
    std::map<std::string, void*> ways_;  // and their memory
    std::thread worker_;

    void work() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr = id_.address;
        address.sin_port = id_.port;
        send_at_once(socket_);
        Head head{.rank = static_cast<std::uint32_t>(rank_), .size = static_cast<std::uint32_t>(size_)};
        is_connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                        send_all(socket_, &head, sizeof head) && receive_all(socket_, &head, sizeof head);
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ends_ || !works_.empty(); });
            if (works_.empty()) return;
            Work work = works_.front();
            lock.unlock();
            wait_for(work.after);
            work.activity.begin();
            if (!is_done(work)) {
                while (!is_aborted_) usleep(1000);  // as a kernel does
                std::memset(work.to, kGarbage, work.size);
            }
            work.activity.end();
            end_work(work.stream);
            lock.lock();
            works_.pop_front();
            changed_.notify_all();
        }
    }

    bool is_done(const Work& work) {
        if (!is_connected_) return false;
        {
            const std::lock_guard lock(sending_);
            const bool brings =
                work.head.kind != Kind::broadcast || work.head.rank == static_cast<unsigned>(rank_);
            if (is_aborted_ || !send_all(socket_, &work.head, sizeof work.head)) return false;
            if (brings && !send_all(socket_, work.from, work.head.bytes)) return false;
        }
        Head head;
        return receive_all(socket_, &head, sizeof head) && head.bytes == work.size &&
               receive_all(socket_, work.to, work.size);
    }
};

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    const char* said = std::getenv("DP_CUDA_EMULATOR_NCCL_VERSION");
    *version = said == nullptr ? NCCL_VERSION_CODE : std::atoi(said);
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "an error";
}
const char* ncclGetLastError(ncclComm_t) {
    const bool is_told = lacks_memory || std::getenv("DP_CUDA_EMULATOR_NCCL_NO_MEMORY") != nullptr;
    return is_told ? "Cuda failure 2 'out of memory'" : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* made) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return ncclSystemError;
    const Id id{own_address(), address.sin_port};
    *made = {};
    std::memcpy(made, &id, sizeof id);
    std::thread(serve, listener).detach();
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
    *made = new ncclComm(id, size, rank);
    if (!(*made)->make_way("itself")) {
        lacks_memory = true;
        return ncclUnhandledCudaError;
    }
    return ncclInProgress;
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    return ncclCommInitRankConfig(made, size, ids[0], rank, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    *state = comm->state();
    return ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
    comm->abort();
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    while (std::getenv("DP_CUDA_EMULATOR_NCCL_HANGS") != nullptr) pause();
    if (std::getenv("DP_CUDA_EMULATOR_NCCL_COUNTS") != nullptr)
        std::fputs("emulated NCCL: an abort\n", stderr);
    comm->abort();
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (std::getenv("DP_CUDA_EMULATOR_NCCL_HANGS") != nullptr) return ncclInternalError;
    comm->wait_until_idle();
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    return comm->queue({.kind = Kind::reduce, .type = type, .reduction = reduction, .bytes = bytes}, from, to,
                       bytes, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    return comm->queue({.kind = Kind::scatter,
                        .type = type,
                        .reduction = reduction,
                        .bytes = bytes * static_cast<std::size_t>(comm->size())},
                       from, to, bytes, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t bytes, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
    return comm->queue({.kind = Kind::gather, .bytes = bytes}, from, to,
                       bytes * static_cast<std::size_t>(comm->size()), stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t bytes, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return comm->queue({.kind = Kind::broadcast, .rank = static_cast<std::uint32_t>(root), .bytes = bytes},
                       from, to, bytes, stream);
}
ncclResult_t ncclSend(const void* from, size_t bytes, ncclDataType_t, int to, ncclComm_t comm,
                      cudaStream_t stream) {
    return comm->queue({.kind = Kind::send, .rank = static_cast<std::uint32_t>(to), .bytes = bytes}, from,
                       nullptr, 0, stream);
}
ncclResult_t ncclRecv(void* to, size_t bytes, ncclDataType_t, int from, ncclComm_t comm,
                      cudaStream_t stream) {
    return comm->queue({.kind = Kind::receive,
                        .rank = static_cast<std::uint32_t>(from),
                        .size = static_cast<std::uint32_t>(bytes)},
                       nullptr, to, bytes, stream);
}
// What is queued never waits for what is queued later, so a group is as good as its parts.
ncclResult_t ncclGroupStart() {
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    return ncclSuccess;
}
}
