// SPDX-License-Identifier: Apache-2.0
#include "common/plan_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/awake.hpp"
#include "base/text.hpp"
#include "common/fields.hpp"

namespace dp {
namespace {

// Fields are lines, and a table has several: its line ends travel as this character.
constexpr char kLineEnd = '\x7f';

// The only field where there is no plan.
constexpr const char* kFailure = "failure";

Try<void> publish(int plan_file, int ready_write, const std::string& text) {
    if (pwrite(plan_file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        return fail(std::string("cannot write the plan: ") + std::strerror(errno));
    // Nobody may wait any more: the tasks were cancelled.
    if (write(ready_write, "!", 1) != 1 && errno != EPIPE)
        return fail(std::string("cannot announce the plan: ") + std::strerror(errno));
    return {};
}

Try<std::string> read_plan_file(int plan_file) {
    std::string text;
    char chunk[1024];
    for (;;) {
        ssize_t n = pread(plan_file, chunk, sizeof chunk, static_cast<off_t>(text.size()));
        if (n < 0) return fail(std::string("cannot read the plan: ") + std::strerror(errno));
        if (n == 0) return text;
        text.append(chunk, static_cast<size_t>(n));
    }
}

}  // namespace

std::string write_plan(const NodePlan& plan) {
    std::string table = plan.table;
    std::replace(table.begin(), table.end(), '\n', kLineEnd);
    std::string place;
    if (plan.place) {
        std::vector<std::string> ranks;
        for (const uint32_t rank : plan.place->ranks) ranks.push_back(std::to_string(rank));
        place = field_line("ranks", join(ranks)) +
                field_line("node_rank", std::to_string(plan.place->node_rank)) +
                field_line("nodes", std::to_string(plan.place->nodes)) +
                field_line("world_size", std::to_string(plan.place->world_size));
    }
    return field_line("generation", std::to_string(plan.generation)) +
           field_line("master_addr", plan.master_addr) +
           field_line("master_port", std::to_string(plan.master_port)) +
           field_line("coordinator_port", std::to_string(plan.coordinator_port)) +
           field_line("node_addr", plan.node_addr) + field_line("table", table) +
           field_line("daemon", std::to_string(plan.daemon)) + field_line("hosts", plan.hosts) +
           field_line("ranks_per_host", plan.ranks_per_host) + place;
}

Try<NodePlan> read_plan(std::string_view text) {
    NodePlan plan;
    plan.master_addr = field_of(text, "master_addr");
    plan.node_addr = field_of(text, "node_addr");
    plan.table = field_of(text, "table");
    std::replace(plan.table.begin(), plan.table.end(), kLineEnd, '\n');
    const auto generation = parse_number<uint32_t>(field_of(text, "generation"));
    const auto port = parse_number<uint16_t>(field_of(text, "master_port"));
    const auto coordinator = parse_number<uint16_t>(field_of(text, "coordinator_port"));
    if (!generation || !port || !coordinator || plan.master_addr.empty())
        return fail("this node's rendezvous daemon wrote a plan without an address");
    plan.generation = *generation;
    plan.master_port = *port;
    plan.coordinator_port = *coordinator;
    plan.daemon = parse_number<pid_t>(field_of(text, "daemon")).value_or(0);
    plan.hosts = field_of(text, "hosts");
    plan.ranks_per_host = field_of(text, "ranks_per_host");
    const auto number = [&](const char* name) {
        return parse_number<uint32_t>(field_of(text, name)).value_or(0);
    };
    if (const uint32_t world_size = number("world_size"); world_size > 0) {
        auto& place = plan.place.emplace();
        for (const std::string_view rank : split(field_of(text, "ranks"), ','))
            if (const auto read = parse_number<uint32_t>(rank)) place.ranks.push_back(*read);
        place.node_rank = number("node_rank");
        place.nodes = number("nodes");
        place.world_size = world_size;
    }
    return plan;
}

Try<void> publish_plan(int plan_file, int ready_write, const NodePlan& plan) {
    return publish(plan_file, ready_write, write_plan(plan));
}

Try<void> publish_failure(int plan_file, int ready_write, const std::string& why) {
    return publish(plan_file, ready_write, field_line(kFailure, why));
}

Try<NodePlan> wait_for_plan(int plan_file, int ready_read, std::chrono::milliseconds timeout) {
    pollfd entry{ready_read, POLLIN, 0};
    int n = 0;
    wait_awake(timeout, [&](std::chrono::milliseconds slice) {
        n = poll_for(entry, slice);
        return n != 0;
    });
    if (n < 0) return fail(std::string("cannot wait for the plan: ") + std::strerror(errno));
    if (n == 0)
        return fail("this node's rendezvous daemon had no plan within " + words(timeout) +
                    ": is dp-rendezvousd stopped there, or the node overloaded?");
    if (!(entry.revents & POLLIN))
        return fail(
            "this node's rendezvous daemon died before it had a plan: was it killed (the job's memory is "
            "used up?), or is its file damaged? install it again");
    const auto text = DP_TRY(read_plan_file(plan_file));
    if (text.starts_with(kFailure)) return fail(std::string(field_of(text, kFailure)));
    return read_plan(text);
}

}  // namespace dp
