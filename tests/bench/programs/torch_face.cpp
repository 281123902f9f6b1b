// SPDX-License-Identifier: Apache-2.0
//
// The broker as PyTorch's store (--dp-store=torch) of a world on one node, and nothing else: prints its port
// and its pid, serves until standard input ends.
//   bench-torch-face DAEMON RANKS
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "latencies.hpp"
#include "real_broker.hpp"

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bench-torch-face DAEMON RANKS\n");
        return 2;
    }
    dp::bench::raise_file_limit();
    dp::bench::StepShape shape;
    shape.nodes = 1;
    shape.ranks_per_node = static_cast<uint32_t>(std::atol(argv[2]));
    shape.torch_store = true;
    dp::bench::RealBroker broker(argv[1], shape);
    broker.wait_for_plan();
    std::printf("{\"port\": %u, \"pid\": %d}\n", broker.master_port(), broker.pid());
    std::fflush(stdout);
    char ignored[64];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    return broker.leave() ? 0 : 1;
}
