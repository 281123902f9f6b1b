// SPDX-License-Identifier: Apache-2.0
//
// An id brought to all ranks by a store that stands on loopback. In each round every rank connects; rank 0
// makes the id and stores it, the others ask for it and wait. As PyTorch's TCPStore of 1.13 (WAIT, then GET)
// or as redis (BLPOP of a list into which rank 0 pushes one copy a rank). A rank's time runs from the common
// start until it has the id. PID is the server's.
//   bench-store torch|redis PORT PID RANKS ROUNDS [one-address]
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "crowd.hpp"
#include "dp/dp.h"
#include "latencies.hpp"
#include "usage.hpp"

namespace dp::bench {
namespace {

using Scripts = std::vector<Script>;

// ---- PyTorch 1.13: a byte, then strings as little-endian u64 length and bytes ----

std::string torch_number(uint64_t number) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(number >> (8 * i));
    return bytes;
}

std::string torch_text(const std::string& text) {
    return torch_number(text.size()) + text;
}

Scripts torch_scripts(size_t ranks, const std::string& key, const std::string& id) {
    constexpr char kSet = 0, kGet = 2, kWait = 5, kStopWaiting = 0;
    const Exchange set{kSet + torch_text(key) + torch_text(id), ""};
    const Exchange wait{kWait + torch_number(1) + torch_text(key), std::string(1, kStopWaiting)};
    const Exchange get{kGet + torch_text(key), torch_text(id)};
    Scripts scripts(ranks, Script{wait, get});
    scripts[0] = {set};
    return scripts;
}

// ---- redis: RESP ----

std::string redis_text(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

std::string redis_array(const std::vector<std::string>& parts) {
    std::string out = "*" + std::to_string(parts.size()) + "\r\n";
    for (const auto& part : parts) out += redis_text(part);
    return out;
}

Scripts redis_scripts(size_t ranks, const std::string& key, const std::string& id) {
    const Exchange pop{redis_array({"BLPOP", key, "60"}), redis_array({key, id})};
    std::vector<std::string> push{"RPUSH", key};
    push.resize(push.size() + ranks - 1, id);
    Scripts scripts(ranks, Script{pop});
    scripts[0] = {{redis_array(push), ":" + std::to_string(ranks - 1) + "\r\n"}};
    return scripts;
}

int run(const std::string& protocol, uint16_t port, pid_t server, size_t ranks, int rounds, Sources sources) {
    raise_file_limit();
    const auto scripts_of = protocol == "redis" ? redis_scripts : torch_scripts;
    const std::string world = "id of " + std::to_string(getpid()) + ", round ";
    const Usage before = usage_of(server);
    long most_kib = 0;
    for (int round = 0; round < rounds; ++round) {
        std::string id(DP_UNIQUE_ID_BYTES, 'i');
        id.replace(0, 8, torch_number(static_cast<uint64_t>(round)));
        print_round(
            converse(on_loopback(port), scripts_of(ranks, world + std::to_string(round), id), sources));
        most_kib = std::max(most_kib, usage_of(server).rss_kib);
    }
    const Usage after = usage_of(server);
    std::printf("{\"cpu_ms_a_round\": %.5f, \"kib_before\": %ld, \"kib_after\": %ld}\n",
                (after.cpu_ms - before.cpu_ms) / rounds, before.rss_kib, most_kib);
    return 0;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    const bool one_address = argc == 7 && std::strcmp(argv[6], "one-address") == 0;
    if ((argc != 6 && !one_address) ||
        (std::strcmp(argv[1], "torch") != 0 && std::strcmp(argv[1], "redis") != 0) ||
        std::atol(argv[4]) < 2) {
        std::fprintf(
            stderr,
            "usage: bench-store torch|redis PORT PID RANKS ROUNDS [one-address]     at least 2 ranks\n");
        return 2;
    }
    return dp::bench::run(argv[1], static_cast<uint16_t>(std::atoi(argv[2])), std::atoi(argv[3]),
                          static_cast<size_t>(std::atol(argv[4])), std::atoi(argv[5]),
                          one_address ? dp::bench::Sources::one_address : dp::bench::Sources::spread);
}
