// SPDX-License-Identifier: Apache-2.0
//
// A step of three nodes with two ranks each: joins, starts, hellos, calls, exits, cut connections and time in
// any order, and any bytes in the place of a message, also of a broker's and of who wants another one. Nothing crashes, what the broker says goes to nodes
// that are there, and as long as nobody lies every call of a rank that is there has an answer in time.
#include "engine/simulation.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    constexpr uint32_t kNodes = 3;
    constexpr uint32_t kRanks = 6;
    fuzz::Bytes bytes(data, size);
    const bool want_table = bytes.byte() % 2 == 1;
    const uint8_t kind = bytes.byte();
    Settings more;
    if (kind >= 128) more.min_nodes = 1;
    if (kind % 4 == 2) more.nccl_debug = NcclDebug{"on"};
    if (kind % 8 == 7) more.preflight = kind % 16 == 7 ? Preflight::quick : Preflight::full;
    Simulation step(kNodes, kRanks / kNodes, Time(10000), want_table, static_cast<FailureAction>(kind % 3),
                    more);
    std::set<std::pair<uint32_t, uint64_t>> calls;  // rank, id
    std::set<uint32_t> gone;                        // ranks that hear nothing any more
    bool honest = true;
    for (unsigned moves = 0; !bytes.empty() && moves < 300; ++moves) {
        const uint8_t what = bytes.byte();
        const uint32_t rank = bytes.byte() % kRanks;
        if (rank >= step.ranks.size()) continue;  // the world has shrunk
        const uint32_t node = step.node_of(rank);
        switch (what % 16) {
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
                gone.insert(rank);
                break;
            case 5:
                step.vanish(rank);
                gone.insert(rank);
                break;
            case 6:
                step.exit(rank, bytes.byte() << 8 | bytes.byte());
                gone.insert(rank);
                break;
            case 7:
                step.end(node);
                for (uint32_t local : {0, 1}) gone.insert(node * 2 + local);
                break;
            case 8:
                if (node == 0) break;  // there the two are one process
                step.cut(node);
                step.lose_broker(node);
                break;
            case 9:
                if (bytes.byte() % 2 == 0)
                    step.enable_rejoin(rank);
                else
                    step.rejoin(rank, step.nodes[node]->generation());
                break;
            case 10:
                step.warn(std::vector<std::string>(step.nccl_to_read.size(), "why"));
                step.pass(Time(bytes.byte() * 4));
                break;
            case 11: {
                const uint64_t id = bytes.byte();
                if (step.ranks[rank].welcome && !gone.contains(rank)) calls.emplace(rank, id);
                step.arrive(rank, id, "world", {}, std::string(bytes.take(4)), bytes.byte() % 4,
                            Time(bytes.byte() * 10), bytes.byte() % 3);
                break;
            }
            case 12:
                honest = false;
                if (auto message = parse_message<wire::FromNode>(bytes.take(bytes.byte())))
                    step.from_node(node, *message);
                break;
            case 13:
                honest = false;
                if (auto message = parse_message<wire::ToNode>(bytes.take(bytes.byte())))
                    step.to_node(node, *message);
                break;
            case 14:
                honest = false;
                if (auto message = parse_message<wire::FromNode>(bytes.take(bytes.byte())))
                    step.support(node, bytes.byte() % kNodes, *message);
                break;
            default:
                honest = false;
                if (auto message = parse_message<wire::FromRank>(bytes.take(bytes.byte())))
                    step.from_rank(rank, *message);
                break;
        }
        step.broker->next_deadline();
    }
    if (!honest) return 0;
    fuzz::must(step.messages_to_nobody == 0, "the broker speaks to nodes that are there");
    if (!calls.empty()) step.pass(Time(15000), Time(500));  // the longest of all deadlines is the step's own
    for (const auto& [rank, id] : calls) {
        const auto& view = step.ranks[rank];
        fuzz::must(view.replies.contains(id) || !view.aborted.empty() || !view.peer_lost.empty() ||
                       gone.contains(rank),
                   "every call is answered");
    }
    return 0;
}
