// SPDX-License-Identifier: Apache-2.0
//
// `dpctl doctor` as the ranks of a step: the first rank of each node examines it and measures the links to the others, in rounds
// in which each node has one partner; rank 0 learns of all of it through the step's store.
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "doctor/links.hpp"
#include "dp/dp.hpp"
#include "dpctl/commands.hpp"
#include "findings/tournament.hpp"

namespace dp {
namespace {

// So many partners tell a bad link from a good one; with more nodes not all pairs are measured.
constexpr uint32_t kMostRounds = 32;

// No node that works takes longer, whatever --dp-timeout is: importing torch, and all rounds with a bad link in each.
constexpr std::chrono::minutes kStepPatience{10};

constexpr const char* kOtherVersion = "a node of this step has another version of slurm-dp";

// What a node says before it measures.
struct Partner {
    uint32_t rank = 0;
    std::string address;
    uint16_t port = 0;
};

template <typename T>
Try<T> as_try(Result<T> result) {
    if (!result) return fail(result.error().message);
    if constexpr (!std::is_void_v<T>)
        return *std::move(result);
    else
        return {};
}

// This run of the doctor, as all its ranks know it: there may be several in a step.
class Run {
 public:
    static Try<Run> begin() {
        Context world = DP_TRY(as_try(Context::open()));
        uint64_t number = 0;
        if (getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<uint64_t>(getpid());
        const std::span<const char> own(reinterpret_cast<const char*>(&number), sizeof number);
        const auto said = DP_TRY(as_try(world.broadcast({}, own, kStepPatience)));
        if (said.size() != sizeof number) return fail("another version's answer");
        std::memcpy(&number, said.data(), sizeof number);
        return Run(std::move(world), number);
    }

    const dp_world& place() const { return world_.world(); }
    bool is_leader() const { return place().local_rank == 0; }
    doctor::LinkToken token(uint32_t round) const { return {number_, round}; }
    std::string key(const char* what, uint32_t node) const {
        return fmt::format("dpctl doctor {:x} {} {}", number_, what, node);
    }
    Try<void> barrier(const Group& group = {}) { return as_try(world_.barrier(group, kStepPatience)); }
    Try<void> say(const std::string& name, const std::string& value) {
        return as_try(world_.set(name, value, kStepPatience));
    }
    Try<void> wait(const std::vector<std::string>& keys) { return as_try(world_.wait(keys, kStepPatience)); }
    Try<std::string> hear(const std::string& name) {
        const auto value = DP_TRY(as_try(world_.get(name, kStepPatience)));
        return std::string(value.begin(), value.end());
    }

 private:
    Run(Context world, uint64_t number) : world_(std::move(world)), number_(number) {}
    Context world_;
    uint64_t number_;
};

// Rank 0 makes one table of what the nodes say: a question of each, not of each for each.
Try<std::vector<Partner>> meet(Run& run, const doctor::LinkServer& server) {
    const dp_world& own = run.place();
    const nlohmann::json said = {own.rank, own.node_addr, server.port()};
    DP_TRY(run.say(run.key("partner", own.node_rank), said.dump()));
    if (own.rank == 0) {
        std::vector<std::string> keys;
        for (uint32_t node = 0; node < own.nodes; ++node) keys.push_back(run.key("partner", node));
        DP_TRY(run.wait(keys));
        std::string table;
        for (const auto& name : keys) table += (table.empty() ? "[" : ",") + DP_TRY(run.hear(name));
        DP_TRY(run.say(run.key("partners", 0), table + "]"));
    }
    const auto text = DP_TRY(run.hear(run.key("partners", 0)));
    try {
        std::vector<Partner> partners;
        for (const auto& one : nlohmann::json::parse(text))
            partners.push_back({one.at(0), one.at(1), one.at(2)});
        if (partners.size() == own.nodes) return partners;
    } catch (const nlohmann::json::exception&) {
    }
    return fail("another version's answer: " + printable(text));
}

Try<std::vector<doctor::Link>> measure_links(Run& run, const doctor::LinkServer& server) {
    const dp_world& own = run.place();
    const auto partners = DP_TRY(meet(run, server));
    Group leaders{"dpctl doctor", {}};
    for (const Partner& one : partners) leaders.members.push_back(one.rank);
    std::ranges::sort(leaders.members);
    const uint32_t all = doctor::rounds_of(own.nodes), rounds = std::min(all, kMostRounds);
    std::vector<doctor::Link> links;
    for (uint32_t i = 0; i < rounds; ++i) {
        DP_TRY(run.barrier(leaders));
        const auto round = static_cast<uint32_t>(uint64_t{i} * all / rounds);
        const auto partner = doctor::partner_in(round, own.node_rank, own.nodes);
        if (!partner) continue;
        if (*partner < own.node_rank) {
            server.serve(run.token(round), doctor::kServePatience);
            continue;
        }
        const auto& [rank, address, port] = partners[*partner];
        links.push_back(doctor::measure_link(address, port, run.token(round), doctor::kLinkPatience));
        links.back().from = own.node_rank;
        links.back().to = *partner;
    }
    return links;
}

std::string to_text(const std::vector<doctor::Link>& links) {
    wire::MeasuredLinks all;
    for (const doctor::Link& one : links) *all.add_links() = message_of(one);
    return all.SerializeAsString();
}

Try<StepExamination> gather(Run& run) {
    const uint32_t nodes = run.place().nodes;
    StepExamination step;
    std::vector<doctor::NodeFacts> facts;
    std::vector<doctor::NodeMeasures> measures;
    std::vector<std::string> hosts, keys;
    std::vector<doctor::Link> links;
    for (uint32_t node = 0; node < nodes; ++node) {
        keys.push_back(run.key("examination", node));
        keys.push_back(run.key("links", node));
    }
    DP_TRY(run.wait(keys));
    for (uint32_t node = 0; node < nodes; ++node) {
        const auto said = DP_TRY(run.hear(run.key("examination", node)));
        wire::NodeExamination examination;
        if (!examination.ParseFromString(said)) return fail(kOtherVersion);
        step.nodes.push_back(doctor::examination_of(examination));
        hosts.push_back(step.nodes.back().host);
        facts.push_back(step.nodes.back().facts);
        measures.push_back(step.nodes.back().measures);
        const auto measured = DP_TRY(run.hear(run.key("links", node)));
        wire::MeasuredLinks theirs;
        if (!theirs.ParseFromString(measured)) return fail(kOtherVersion);
        for (const auto& one : theirs.links())
            if (one.from() < nodes && one.to() < nodes) links.push_back(doctor::link_of(one));
    }
    const auto add = [&](std::vector<doctor::ComparedFact> compared) {
        for (auto& one : compared) step.between.push_back(std::move(one));
    };
    add(doctor::compare_nodes(facts, hosts));
    add(doctor::compare_measures(measures, hosts));
    add(doctor::check_links(links, hosts));
    return step;
}

}  // namespace

Try<std::optional<StepExamination>> examine_step(const doctor::Machine& machine) {
    Run run = DP_TRY(Run::begin());
    if (run.is_leader()) {
        const uint32_t node = run.place().node_rank;
        const auto server = DP_TRY(doctor::LinkServer::open(run.place().node_addr));
        const auto examination = examine_machine(machine);
        DP_TRY(run.say(run.key("examination", node), message_of(examination).SerializeAsString()));
        const auto links = DP_TRY(measure_links(run, server));
        DP_TRY(run.say(run.key("links", node), to_text(links)));
    }
    std::optional<StepExamination> found;
    if (run.place().rank == 0) found = DP_TRY(gather(run));
    DP_TRY(run.barrier());
    return found;
}

}  // namespace dp
