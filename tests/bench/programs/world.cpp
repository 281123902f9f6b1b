// SPDX-License-Identifier: Apache-2.0
//
// A step of any size on one machine and how long its ranks wait for their unique ids: the real broker with
// its own node's ranks as real clients of libdp, all other nodes simulated (simulated_nodes.hpp). In each
// round every rank asks for the world's unique ids at once; a rank's time runs from that common start until
// it has them.
//   bench-world DAEMON NODES RANKS_PER_NODE ROUNDS
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>

#include "common/roots.hpp"
#include "failing.hpp"
#include "latencies.hpp"
#include "real_broker.hpp"
#include "simulated_nodes.hpp"
#include "usage.hpp"

namespace dp::bench {
namespace {

// After the last round, until the broker is at rest.
constexpr std::chrono::milliseconds kSettle{500};

// The id that a rank makes in a round: nobody else's, and not that of another round.
std::string id_of(uint32_t rank, uint64_t round) {
    std::string id(DP_UNIQUE_ID_BYTES, '\0');
    const std::string text = std::to_string(rank) + " in round " + std::to_string(round);
    id.replace(0, text.size(), text);
    return id;
}

wire::Request request_of(uint32_t rank, uint32_t world, uint64_t round) {
    const auto roots = static_cast<uint32_t>(dp_unique_id_count(world));
    wire::Request request;
    request.set_id(round + 1);
    request.set_timeout_ms(std::chrono::milliseconds(kPatience).count());
    request.mutable_arrive()->set_group("world");
    request.mutable_arrive()->set_sequence(round);
    request.mutable_arrive()->set_roots(roots);
    if (root_at(rank, roots, world)) request.mutable_arrive()->set_value(id_of(rank, round));
    return request;
}

std::string expected_ids(uint32_t world, uint64_t round) {
    const auto roots = static_cast<uint32_t>(dp_unique_id_count(world));
    std::string ids;
    for (uint32_t root = 0; root < roots; ++root)
        ids += id_of(static_cast<uint32_t>(place_of_root(root, roots, world)), round);
    return ids;
}

// What all ranks share in a round.
struct Round {
    uint64_t number = 0;
    std::string ids;
    Clock::time_point start;
    std::vector<double> ms;
    size_t answered = 0;  // of the simulated ones

    void check(const std::string& got, uint32_t rank) {
        if (got != ids) die("rank " + std::to_string(rank) + " got other ids than the roots made");
        ms[rank] = ms_since(start);
    }
};

// The first node's ranks: a thread each, from before the start on.
class Threads {
 public:
    Threads(std::vector<std::unique_ptr<Client>>& clients, uint32_t world, Round& round)
        : there_(static_cast<std::ptrdiff_t>(clients.size())) {
        for (uint32_t rank = 0; rank < clients.size(); ++rank)
            threads_.emplace_back([this, rank, world, &round, client = clients[rank].get()] {
                there_.count_down();
                go_.wait(false);
                auto reply = client->call(request_of(rank, world, round.number), kPatience);
                if (!reply) die(reply.error().message);
                round.check(reply->value(), rank);
            });
        there_.wait();
    }
    ~Threads() {
        for (auto& thread : threads_) thread.join();
    }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    void go() {
        go_ = true;
        go_.notify_all();
    }

 private:
    std::latch there_;
    std::atomic<bool> go_{false};
    std::vector<std::thread> threads_;
};

void one_round(Round& round, uint64_t number, uint32_t world, std::vector<std::unique_ptr<Client>>& clients,
               SimulatedNodes& others) {
    round.number = number;
    round.ids = expected_ids(world, number);
    round.ms.assign(world, 0);
    round.answered = 0;
    {
        Threads threads(clients, world, round);
        round.start = Clock::now();
        threads.go();
        wire::FromRank message;
        for (uint32_t rank = others.first_rank(); rank < world; ++rank) {
            *message.mutable_request() = request_of(rank, world, number);
            others.say(rank, message);
        }
        others.run_until([&] { return round.answered == others.ranks(); });
    }
    print_round(round.ms);
}

int run(const std::string& daemon, const StepShape& shape, uint64_t rounds) {
    raise_file_limit();
    RealBroker broker(daemon, shape);
    const Usage empty = usage_of(broker.pid());
    const auto connecting = Clock::now();
    Round round;
    SimulatedNodes others(shape, broker, [&](uint32_t rank, const wire::ToRank& message) {
        if (!message.has_reply()) return;
        const wire::Reply& reply = message.reply();
        if (reply.status() != wire::OK) die(reply.error());
        round.check(reply.value(), rank);
        ++round.answered;
    });
    others.join();
    broker.wait_for_plan();
    const double joined_ms = ms_since(connecting);
    auto clients = broker.open_ranks();
    const Usage before = usage_of(broker.pid());
    // The first rounds fill what is then used again and again.
    const uint64_t warm_up = std::max<uint64_t>(1, rounds / 10);
    Usage warm;
    for (uint64_t number = 0; number < rounds; ++number) {
        one_round(round, number, shape.world(), clients, others);
        if (number + 1 == warm_up) warm = usage_of(broker.pid());
    }
    const Usage done = usage_of(broker.pid());
    const auto settled = Clock::now() + kSettle;
    others.run_until([&] { return Clock::now() >= settled; });
    const Usage after = usage_of(broker.pid());
    std::printf(
        "{\"joined_ms\": %.3f, \"cpu_ms_a_round\": %.5f, \"kib_before\": %ld, \"kib_joined\": %ld, "
        "\"kib_warm\": %ld, "
        "\"warm_up\": %llu, \"kib_after\": %ld, \"kib_peak\": %ld}\n",
        joined_ms, (done.cpu_ms - before.cpu_ms) / static_cast<double>(rounds), empty.rss_kib, before.rss_kib,
        warm.rss_kib, static_cast<unsigned long long>(warm_up), after.rss_kib, after.peak_kib);
    clients.clear();
    others.leave();
    return broker.leave() ? 0 : 1;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench-world DAEMON NODES RANKS_PER_NODE ROUNDS\n");
        return 2;
    }
    dp::bench::StepShape shape;
    shape.nodes = static_cast<uint32_t>(std::atol(argv[2]));
    shape.ranks_per_node = static_cast<uint32_t>(std::atol(argv[3]));
    return dp::bench::run(argv[1], shape, static_cast<uint64_t>(std::atol(argv[4])));
}
