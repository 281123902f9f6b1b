// SPDX-License-Identifier: Apache-2.0
//
// A step of three nodes with two ranks each: joins, starts, hellos, calls, exits, cut connections and time in
// any order, and any bytes in the place of a message. Nothing crashes, and what the broker says goes to nodes
// that are there.
#include "engine/simulation.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    constexpr uint32_t kNodes = 3;
    constexpr uint32_t kRanks = 6;
    fuzz::Bytes bytes(data, size);
    Simulation step(kNodes, kRanks / kNodes, Time(10000), bytes.byte() % 2 == 1, bytes.byte() % 2 == 1);
    for (unsigned moves = 0; !bytes.empty() && moves < 300; ++moves) {
        const uint8_t what = bytes.byte();
        const uint32_t rank = bytes.byte() % kRanks;
        const uint32_t node = step.node_of(rank);
        switch (what % 14) {
            case 0:
                step.join(node);
                break;
            case 1:
                step.join_all();
                break;
            case 2:
                step.start(rank);
                break;
            case 3:
                step.hello(rank);
                break;
            case 4:
                step.goodbye(rank);
                break;
            case 5:
                step.vanish(rank);
                break;
            case 6:
                step.exit(rank, bytes.byte() << 8 | bytes.byte());
                break;
            case 7:
                step.end(node);
                break;
            case 8:
                step.cut(node);
                break;
            case 9:
                step.lose_broker(node);
                break;
            case 10:
                step.pass(Time(bytes.byte() * 4));
                break;
            case 11:
                step.arrive(rank, bytes.byte(), "world", {}, std::string(bytes.take(4)), bytes.byte() % 4,
                            Time(bytes.byte() * 10), bytes.byte() % 3);
                break;
            case 12:
                if (auto message = parse_message<wire::FromNode>(bytes.take(bytes.byte())))
                    step.from_node(node, *message);
                break;
            default:
                if (auto message = parse_message<wire::FromRank>(bytes.take(bytes.byte())))
                    step.from_rank(rank, *message);
                break;
        }
        step.broker->next_deadline();
    }
    return 0;
}
