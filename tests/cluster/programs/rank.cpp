// SPDX-License-Identifier: Apache-2.0
//
// A rank for the cluster tests: opens the world through libdp and does what its first word says. Prints one
// line a rank.
//
//   rank world              where it stands
//   rank id GROUP           a unique id of the group, in hexadecimal; a real one of NCCL's where it was built
//                           with NCCL
//   rank groups             its place in each dimension, and a unique id of that group
//   rank store              each operation of the store, checked
//   rank meet SECONDS       barrier, "met", then sleeps
//   rank wait SECONDS       computes for so long, "waits", then barrier, "met"
//   rank train FILE         barrier, "met", a barrier every 50 ms until FILE is there (10 minutes at most)
//   and
//                           for as many steps more as it says, "trained"
//   rank survive FILE LATE  keeps its process when others die: "generation 1: rank 2 of 4 met, 1 3 replaced", then
//                           barriers until FILE is there; then all say goodbye. Rank LATE never rejoins
//   rank phases FILE        "met", then until FILE is there (10 minutes at most) rank 0 computes and loads,
//                           rank 1 is idle, rank 2 communicates and writes checkpoints, and the others do not
//                           say what they do; "done"
//   rank fill MEGABYTES     so many values of a megabyte into the store, by rank 0
//   rank late RANK SECONDS  that rank sleeps before it says hello; the others meet
//   rank full               opens files until no descriptor is left, then the world
//   rank leave RANK         that rank exits 0 without goodbye; the others say goodbye
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "dp/dp.hpp"
#ifdef DP_TEST_NCCL
#include <nccl.h>
#endif

namespace {

int complain(const dp::Context& context, const dp::Error& error) {
    std::printf("rank %u: %s: %s\n", context.world().rank, dp_status_name(error.status),
                error.message.c_str());
    return 4;
}

std::optional<dp::UniqueId> make_id() {
    dp::UniqueId id{};
#ifdef DP_TEST_NCCL
    static_assert(sizeof(ncclUniqueId) == sizeof id);
    ncclUniqueId nccl;
    if (ncclGetUniqueId(&nccl) != ncclSuccess) return std::nullopt;
    std::copy(std::begin(nccl.internal), std::end(nccl.internal), reinterpret_cast<char*>(id.data()));
#else
    if (getentropy(id.data(), id.size()) != 0) return std::nullopt;
#endif
    return id;
}

int world(dp::Context& context) {
    const dp_world& w = context.world();
    std::printf("rank=%u size=%u local_rank=%u local_size=%u node_rank=%u nodes=%u master=%s:%u node=%s\n",
                w.rank, w.size, w.local_rank, w.local_size, w.node_rank, w.nodes, w.master_addr,
                w.master_port, w.node_addr);
    return 0;
}

std::string hexadecimal(const dp::UniqueId& id) {
    std::string text;
    char digits[3];
    for (auto byte : id) {
        std::snprintf(digits, sizeof digits, "%02x", byte);
        text += digits;
    }
    return text;
}

int unique_id(dp::Context& context, const std::string& group) {
    for (int round = 0; round < 2; ++round) {
        auto id = context.unique_id({group, {}}, make_id);
        if (!id) return complain(context, id.error());
        std::printf("round=%d id=%s\n", round, hexadecimal(*id).c_str());
    }
    return 0;
}

int groups(dp::Context& context) {
    std::string line = "rank=" + std::to_string(context.world().rank);
    for (dp_dimension dimension : {DP_TENSOR, DP_DATA, DP_PIPELINE}) {
        const dp::Place place = context.place(dimension);
        auto id = context.unique_id(place.group, make_id);
        if (!id) return complain(context, id.error());
        line += " " + place.group.name + "=" + std::to_string(place.rank) + "/" + std::to_string(place.size) +
                ":" + hexadecimal(*id);
    }
    std::printf("%s\n", line.c_str());
    return 0;
}

bool check(bool good, const char* what) {
    if (!good) std::printf("wrong: %s (%s)\n", what, dp_last_error());
    return good;
}

int store(dp::Context& context) {
    const auto rank = context.world().rank;
    const auto size = context.world().size;
    const std::string mine = "key-" + std::to_string(rank);
    const std::string next = "key-" + std::to_string((rank + 1) % size);
    bool good = check(context.set(mine, std::string(rank + 1, 'x')).has_value(), "set");
    auto got = context.get(next);
    good &= check(got && got->size() == (rank + 1) % size + 1, "get waits for the neighbour's key");
    auto missing = context.get("nowhere", std::chrono::milliseconds(0));
    good &= check(!missing && missing.error().status == DP_ERROR_NOT_FOUND, "get without waiting");
    auto late = context.get("nowhere", std::chrono::milliseconds(50));
    good &= check(!late && late.error().status == DP_ERROR_TIMEOUT, "get with a deadline");
    good &= check(context.add("count", 2).has_value(), "add");
    const std::string self = std::to_string(rank);
    auto winner = context.compare_set("winner", {}, self);
    good &= check(winner && !winner->empty(), "compare_set");
    good &= check(context.barrier().has_value(), "barrier");
    auto count = context.add("count", 0);
    good &= check(count && *count == 2 * size, "all additions are there");
    auto again = context.get("winner");
    good &= check(again && winner && *again == *winner, "one winner for all");
    good &= check(context.wait({mine, next, "count"}).has_value(), "wait");
    std::printf("%s\n", good ? "store ok" : "store wrong");
    return good ? 0 : 5;
}

int meet(dp::Context& context, unsigned seconds) {
    if (auto met = context.barrier(); !met) return complain(context, met.error());
    std::printf("rank %u met\n", context.world().rank);
    std::fflush(stdout);
    sleep(seconds);
    return 0;
}

int wait(dp::Context& context, unsigned seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {
    }
    std::printf("rank %u waits\n", context.world().rank);
    std::fflush(stdout);
    return meet(context, 0);
}

int fill(dp::Context& context, unsigned megabytes) {
    const std::string value(DP_MAX_VALUE_BYTES, 'x');
    for (unsigned i = 0; context.world().rank == 0 && i < megabytes; ++i)
        if (auto set = context.set("fill-" + std::to_string(i), value); !set)
            return complain(context, set.error());
    return meet(context, 0);
}

int train(dp::Context& context, const std::string& file) {
    constexpr unsigned kStepsPerSecond = 20, kMostSteps = 10 * 60 * kStepsPerSecond;
    if (const int code = meet(context, 0); code != 0) return code;
    unsigned last = kMostSteps;
    for (unsigned step = 0; step < kMostSteps; ++step) {
        usleep(1'000'000 / kStepsPerSecond);
        if (auto met = context.barrier(); !met) return complain(context, met.error());
        unsigned more = 0;
        if (last == kMostSteps && std::ifstream(file) >> more) last = step + more;
        // Rank 0's word counts, so that all end after the same step.
        auto enough = context.broadcast({}, std::string(step >= last ? "yes" : "no"));
        if (!enough) return complain(context, enough.error());
        if (enough->front() == 'y') break;
    }
    std::printf("rank %u trained\n", context.world().rank);
    return 0;
}

// One generation of `survive`; nullopt: a peer is lost.
std::optional<int> live(dp::Context& context, const std::string& file, const std::string& replaced) {
    bool has_met = false;
    for (bool is_enough = false; !is_enough;) {
        const auto told = context.broadcast({}, std::string(access(file.c_str(), F_OK) == 0 ? "yes" : "no"));
        if (!told && told.error().status == DP_ERROR_PEER_LOST) return std::nullopt;
        if (!told) return complain(context, told.error());
        const dp_world& w = context.world();
        if (!std::exchange(has_met, true))
            std::printf("generation %u: rank %u of %u met,%s replaced\n", w.generation, w.rank, w.size,
                        replaced.empty() ? " none" : replaced.c_str());
        std::fflush(stdout);
        is_enough = told->front() == 'y';
        usleep(10000);
    }
    return 0;
}

int survive(dp::Context& context, const std::string& file, const char* late) {
    context.enable_rejoin();
    for (std::string replaced;;) {
        if (const auto code = live(context, file, replaced)) return *code;
        if (late && context.world().rank == static_cast<unsigned>(std::atoi(late))) sleep(600);
        auto changes = context.rejoin(std::chrono::milliseconds(20));
        while (!changes && changes.error().status == DP_ERROR_TIMEOUT)  // it may be called again
            changes = context.rejoin(std::chrono::milliseconds(20));
        if (!changes) return complain(context, changes.error());
        replaced.clear();
        for (const auto rank : changes->replaced) replaced += " " + std::to_string(rank);
    }
}

int phases(dp::Context& context, const std::string& until) {
    if (const int code = meet(context, 0); code != 0) return code;
    struct Share {
        dp_phase_kind phase;
        unsigned milliseconds;
    };
    const std::vector<std::vector<Share>> shares = {
        {{DP_PHASE_COMPUTE, 30}, {DP_PHASE_LOAD, 10}},
        {{DP_PHASE_IDLE, 40}},
        {{DP_PHASE_COMMUNICATION, 20}, {DP_PHASE_CHECKPOINT, 20}}};
    const auto rank = context.world().rank;
    constexpr unsigned kMostRounds = 10 * 60 * 25;
    for (unsigned round = 0; round < kMostRounds && access(until.c_str(), F_OK) != 0; ++round) {
        if (rank >= shares.size()) {
            usleep(40000);
            continue;
        }
        for (const Share& share : shares[rank]) {
            if (auto entered = context.phase(share.phase); !entered)
                return complain(context, entered.error());
            usleep(share.milliseconds * 1000);
        }
    }
    std::printf("rank %u done\n", rank);
    return 0;
}

// Steps of 10 ms and a barrier, as a training has them; of the rank `slow` the first `slow_steps` take 30 ms.
int pace(dp::Context& context, unsigned steps, unsigned slow, unsigned slow_steps) {
    for (unsigned step = 0; step < steps; ++step) {
        const bool is_slow = context.world().rank == slow && step < slow_steps;
        if (auto entered = context.phase(DP_PHASE_COMPUTE); !entered)
            return complain(context, entered.error());
        usleep(8000);
        (void)context.phase(DP_PHASE_LOAD);
        usleep(is_slow ? 22000 : 2000);
        (void)context.phase(DP_PHASE_COMMUNICATION);
        if (auto met = context.barrier(); !met) return complain(context, met.error());
        context.at_step(step);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string verb = argc > 1 ? argv[1] : "world";
    const std::string first = argc > 2 ? argv[2] : "0";
    const auto number = static_cast<unsigned>(std::atoi(first.c_str()));
    const char* rank = std::getenv("RANK");
    if (verb == "late" && rank && first == rank)
        sleep(static_cast<unsigned>(std::atoi(argc > 3 ? argv[3] : "0")));
    if (verb == "full")
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
        }
    auto context = dp::Context::open();
    if (!context) {
        std::fprintf(stderr, "cannot open the world: %s\n", context.error().message.c_str());
        return 3;
    }
    if (verb == "world") return world(*context);
    if (verb == "id") return unique_id(*context, first);
    if (verb == "groups") return groups(*context);
    if (verb == "store") return store(*context);
    if (verb == "meet") return meet(*context, number);
    if (verb == "wait") return wait(*context, number);
    if (verb == "phases") return phases(*context, first);
    if (verb == "pace" && argc == 5)
        return pace(*context, number, static_cast<unsigned>(std::atoi(argv[3])),
                    static_cast<unsigned>(std::atoi(argv[4])));
    if (verb == "fill") return fill(*context, number);
    if (verb == "train") return train(*context, first);
    if (verb == "survive") return survive(*context, first, argc > 3 ? argv[3] : nullptr);
    if (verb == "late") return meet(*context, 0);
    if (verb == "leave") {
        if (context->world().rank == number) _exit(0);
        return 0;
    }
    std::fprintf(stderr, "rank: unknown verb %s\n", verb.c_str());
    return 2;
}
