// SPDX-License-Identifier: Apache-2.0
//
// A step of any size on one machine and how soon its ranks know of a death: the real broker with its own
// node's ranks as real clients of libdp, all other nodes simulated (simulated_nodes.hpp). In each round a
// rank of a simulated node is killed; a survivor's time runs from then until it has been told which rank it
// was, where and why. The others go on.
//   bench-deaths DAEMON NODES RANKS_PER_NODE ROUNDS
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <set>

#include "engine/broker.hpp"
#include "failing.hpp"
#include "latencies.hpp"
#include "real_broker.hpp"
#include "simulated_nodes.hpp"

namespace dp::bench {
namespace {

// What a round's survivors are told; called on several threads.
class News {
 public:
    News(uint32_t world, uint32_t ranks_per_node) : ranks_per_node_(ranks_per_node), ms_(world) {}

    void begin(uint32_t victim) {
        victim_ = victim;
        where_ =
            "rank " + std::to_string(victim) + " on sim" + std::to_string(victim / ranks_per_node_) + " ";
        told_ = 0;
        start_ = Clock::now();
    }
    void tell(uint32_t rank, const std::string& reason, const std::vector<uint32_t>& dead) {
        ms_[rank] = ms_since(start_);
        if (dead != std::vector<uint32_t>{victim_} || !reason.starts_with(where_) ||
            reason.find("SIGKILL") == std::string::npos)
            die("rank " + std::to_string(rank) + " was told \"" + reason + "\" when " + where_ +
                "was killed");
        ++told_;
    }
    size_t told() const { return told_; }
    double ms(uint32_t rank) const { return ms_[rank]; }

 private:
    uint32_t ranks_per_node_;
    std::vector<double> ms_;
    uint32_t victim_ = 0;
    std::string where_;
    Clock::time_point start_;
    std::atomic<size_t> told_{0};
};

int run(const std::string& daemon, const StepShape& shape, size_t rounds) {
    raise_file_limit();
    const uint32_t world = shape.world();
    RealBroker broker(daemon, shape);
    News news(world, shape.ranks_per_node);
    SimulatedNodes others(shape, broker, [&](uint32_t rank, const wire::ToRank& message) {
        if (!message.has_deaths()) return;
        const wire::Deaths& deaths = message.deaths();
        news.tell(rank, deaths.reason(), {deaths.ranks().begin(), deaths.ranks().end()});
    });
    others.join();
    broker.wait_for_plan();
    auto clients = broker.open_ranks();
    for (uint32_t rank = 0; rank < clients.size(); ++rank)
        clients[rank]->on_event([&news, rank](const StepEvent& event) {
            if (event.kind == DP_EVENT_DEATHS) news.tell(rank, event.reason, event.ranks);
        });

    std::set<uint32_t> dead;
    std::mt19937 random(1);
    std::uniform_int_distribution<uint32_t> any(others.first_rank(), world - 1);
    for (size_t round = 0; round < rounds; ++round) {
        uint32_t victim = any(random);
        while (dead.contains(victim)) victim = any(random);
        dead.insert(victim);
        news.begin(victim);
        others.rank_dies(victim, SIGKILL);  // as a wait status: killed by that signal
        others.run_until([&] { return news.told() == world - dead.size(); });
        std::vector<double> ms;
        for (uint32_t rank = 0; rank < world; ++rank)
            if (!dead.contains(rank)) ms.push_back(news.ms(rank));
        print_round(std::move(ms));
        // What follows at once is told together with others (kDeathsTogether); this is about each by itself.
        const auto next = Clock::now() + 2 * kDeathsTogether;
        others.run_until([&] { return Clock::now() >= next; });
    }
    clients.clear();
    others.leave();
    return broker.leave() ? 0 : 1;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench-deaths DAEMON NODES RANKS_PER_NODE ROUNDS\n");
        return 2;
    }
    dp::bench::StepShape shape;
    shape.nodes = static_cast<uint32_t>(std::atol(argv[2]));
    shape.ranks_per_node = static_cast<uint32_t>(std::atol(argv[3]));
    shape.on_failure = dp::FailureAction::report;
    const auto rounds = static_cast<size_t>(std::atol(argv[4]));
    if (shape.nodes < 2 || rounds >= shape.world() - shape.ranks_per_node) {
        std::fprintf(stderr, "bench-deaths: not so many ranks of other nodes than the first can die\n");
        return 2;
    }
    return dp::bench::run(argv[1], shape, rounds);
}
