// SPDX-License-Identifier: Apache-2.0
//
// A step of any size on one machine and how soon all its nodes have the plan of the next generation after a death
// (--dp-on-failure=restart): the real broker with its own node's ranks under real keepers, all other nodes simulated
// (simulated_nodes.hpp). In each round a rank of a simulated node is killed, at some training step, or a node dies and a
// spare takes its place; a node's time runs from then until its keepers get the next plan. All ranks end at SIGTERM. Or the
// broker is killed, once, and a spare follows it.
//   bench-restarts DAEMON NODES RANKS_PER_NODE ROUNDS rank|node|broker
#include <signal.h>

#include <cstdlib>
#include <random>
#include <string_view>

#include "failing.hpp"
#include "latencies.hpp"
#include "real_broker.hpp"
#include "simulated_nodes.hpp"

namespace dp::bench {
namespace {

// Until the last ranks of the generation have started.
constexpr std::chrono::milliseconds kStill{100};

int run(const std::string& daemon, const StepShape& shape, size_t rounds) {
    raise_file_limit();
    RealBroker broker(daemon, shape);
    SimulatedNodes others(shape, broker, [](uint32_t, const wire::ToRank&) {});
    others.join();
    broker.start_keepers();
    std::mt19937 random(1);
    std::uniform_int_distribution<uint32_t> any(others.first_rank(), shape.world() - 1);
    for (size_t round = 0; round < rounds; ++round) {
        const auto still = Clock::now() + kStill;
        others.run_until([&] { return Clock::now() >= still; });
        const auto start = Clock::now();
        std::vector<double> ms;
        others.on_next_life([&] { ms.push_back(ms_since(start)); });
        size_t living = shape.nodes - 1;
        if (shape.broker_dies) {
            kill(broker.pid(), SIGKILL);
        } else if (shape.spares == 0) {
            others.kept_rank_dies(any(random), round + 1);
        } else {
            others.node_dies(static_cast<uint32_t>(round + 1));
            living -= round + 1;
        }
        others.run_until([&] { return ms.size() == living; });
        print_round(std::move(ms));
    }
    broker.kill_all();
    return 0;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    const std::string_view what = argc == 6 ? argv[5] : "";
    if (what != "rank" && what != "node" && what != "broker") {
        std::fprintf(stderr, "usage: bench-restarts DAEMON NODES RANKS_PER_NODE ROUNDS rank|node|broker\n");
        return 2;
    }
    dp::bench::StepShape shape;
    shape.nodes = static_cast<uint32_t>(std::atol(argv[2]));
    shape.ranks_per_node = static_cast<uint32_t>(std::atol(argv[3]));
    shape.on_failure = dp::FailureAction::restart;
    shape.broker_dies = what == "broker";
    const auto rounds = shape.broker_dies ? 1 : static_cast<uint32_t>(std::atol(argv[4]));
    if (shape.nodes < 2 || (what == "node" && shape.nodes <= rounds)) {
        std::fprintf(stderr,
                     "bench-restarts: at least two nodes, and more than rounds of which each takes one\n");
        return 2;
    }
    // A spare for each round.
    if (what != "rank") shape.nodes += shape.spares = rounds;
    return dp::bench::run(argv[1], shape, rounds);
}
