// SPDX-License-Identifier: Apache-2.0
#include "record/entries.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp {
namespace {

using record::Moment;

// Varints have at most 10 bytes (https://protobuf.dev/programming-guides/encoding/).
constexpr size_t kLongestVarint = 10;

std::string varint(size_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
    return out += static_cast<char>(value);
}

record::Entry moment(Moment::Kind kind, uint32_t rank, uint32_t generation) {
    record::Entry entry;
    auto& moment = *entry.mutable_moment();
    moment.set_kind(kind);
    moment.set_rank(rank);
    moment.set_generation(generation);
    return entry;
}

std::optional<record::Entry> moment_of(const wire::RankEvent& event, uint32_t generation) {
    const auto plain = [&](Moment::Kind kind) { return moment(kind, event.rank(), generation); };
    switch (event.event_case()) {
        case wire::RankEvent::kStarted: {
            record::Entry entry = plain(Moment::STARTED);
            entry.mutable_moment()->set_pid(event.started());
            return entry;
        }
        case wire::RankEvent::kExited: {
            record::Entry entry = plain(Moment::EXITED);
            entry.mutable_moment()->set_wait_status(event.exited());
            return entry;
        }
        case wire::RankEvent::kStill: {
            record::Entry entry = plain(Moment::STILL);
            auto& still = *entry.mutable_moment();
            still.set_still_ms(event.still().for_ms());
            still.set_where(printable(event.still().where(), kMaxRecordText));
            still.set_waits_for_others(event.still().waits_for_others());
            return entry;
        }
        case wire::RankEvent::kGoodbye:
            return plain(Moment::GOODBYE);
        case wire::RankEvent::kVanished:
            return plain(Moment::VANISHED);
        case wire::RankEvent::kReady:
            return plain(Moment::READY);
        case wire::RankEvent::kStopped:
            return plain(event.stopped() ? Moment::STOPPED : Moment::CONTINUED);
        case wire::RankEvent::kToldToEnd:
            return plain(Moment::TOLD_TO_END);
        case wire::RankEvent::kMoves:
            return plain(Moment::MOVES);
        case wire::RankEvent::kFirstStep: {
            record::Entry entry = plain(Moment::FIRST_STEP);
            entry.mutable_moment()->set_step(event.first_step());
            return entry;
        }
        case wire::RankEvent::EVENT_NOT_SET:
            break;
    }
    return std::nullopt;
}

}  // namespace

std::string bytes_of(const record::Entry& entry) {
    const std::string body = entry.SerializeAsString();
    return varint(body.size()) + body;
}

TakenEntry take_entry(std::string_view bytes) {
    size_t length = 0;
    for (size_t i = 0; i < std::min(bytes.size(), kLongestVarint); ++i) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        length |= size_t{byte & 0x7fU} << (7 * i);
        if (length > kMaxRecordEntry) return {{}, 0};
        if (byte & 0x80) continue;
        const size_t header = i + 1;
        if (length == 0) return {{}, 0};  // an entry has a time, or is the first
        if (bytes.size() < header + length) return {};
        TakenEntry taken{record::Entry(), header + length};
        if (!taken.entry->ParseFromArray(bytes.data() + header, static_cast<int>(length))) return {{}, 0};
        return taken;
    }
    return bytes.size() < kLongestVarint ? TakenEntry{} : TakenEntry{{}, 0};
}

record::Entry begin_entry(const DaemonConfig& config, const std::string& run, const std::string& version,
                          int64_t unix_ms) {
    record::Entry entry;
    auto& begin = *entry.mutable_begin();
    begin.set_run(run);
    begin.set_slurm_dp(version);
    begin.set_job_id(config.job_id);
    begin.set_step_id(config.step_id);
    begin.set_host(printable(config.host, kMaxRecordText));
    begin.set_node_rank(config.node_rank);
    begin.set_tasks(config.tasks);
    begin.set_nodes(printable(config.node_list, kMaxRecordText));
    begin.set_node_count(config.nodes);
    begin.set_unix_ms(unix_ms);
    for (const auto& spec : option_specs()) {
        const auto value = spec.get(config.settings);
        if (!value) continue;
        auto& setting = *begin.add_settings();
        setting.set_option(spec.name);
        setting.set_value(printable(*value, kMaxRecordText));
    }
    return entry;
}

record::Entry generation_entry(const DaemonConfig& config, const NodePlan& plan) {
    record::Entry entry;
    auto& generation = *entry.mutable_generation();
    generation.set_number(plan.generation);
    generation.set_world_size(config.world_size);
    for (const uint32_t rank : config.ranks) generation.add_ranks(rank);
    generation.set_node_rank(plan.place ? plan.place->node_rank : config.node_rank);
    generation.set_master_addr(printable(plan.master_addr, kMaxRecordText));
    generation.set_master_port(plan.master_port);
    return entry;
}

record::Entry generation_end_entry(uint32_t generation, const wire::Abort& why, bool is_last) {
    record::Entry entry;
    auto& end = *entry.mutable_generation_end();
    end.set_generation(generation);
    end.set_reason(printable(why.reason(), kMaxRecordText));
    *end.mutable_dead() = why.dead();
    end.set_is_last(is_last);
    return entry;
}

record::Entry note_entry(const std::string& text) {
    record::Entry entry;
    entry.mutable_note()->set_text(printable(text, kMaxRecordText));
    return entry;
}

std::vector<record::Entry> entries_of(const wire::FromNode& message) {
    std::vector<record::Entry> entries;
    if (message.has_rank())
        if (auto entry = moment_of(message.rank(), message.generation()))
            entries.push_back(std::move(*entry));
    for (const auto& hello : message.hellos().ranks()) {
        entries.push_back(moment(Moment::HELLO, hello.rank(), message.generation()));
        entries.back().mutable_moment()->set_pid(hello.pid());
    }
    return entries;
}

std::string record_file_name(const NodeOfStep& node, const std::string& run) {
    std::string step =
        node.job_id == 0 ? "launch" : std::to_string(node.job_id) + "." + std::to_string(node.step_id);
    // Components of a heterogeneous step, whose nodes are not listed, may share a host.
    if (node.job_id != 0 && node.node_list.empty()) step += "+" + std::to_string(node.node_rank);
    std::string host = node.host;
    std::ranges::replace(host, '/', '_');
    return step + "-" + run + "-" + host + std::string(kRecordSuffix);
}

}  // namespace dp
