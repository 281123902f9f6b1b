// SPDX-License-Identifier: Apache-2.0
//
// `dpctl waterfall`.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "engine/table.hpp"

namespace dp {
namespace {

constexpr size_t kRanksShown = 32;
constexpr size_t kBar = 40;
// A rank that takes this much longer than the median for a phase stands out.
constexpr int64_t kStandsOutMs = 50;
constexpr int64_t kStandsOutFactor = 2;

struct Moment {
    const char* title;
    const char* reached;  // in a sentence
    char mark;            // of the way to it
};
constexpr Moment kMomentNames[] = {{"started", "to be started", '.'},
                                   {"hello", "from its start to its hello", '-'},
                                   {"id", "from its hello to its unique id", '='},
                                   {"ready", "from its unique id to its communicator", '#'}};
constexpr size_t kMoments = std::size(kMomentNames);

struct Row {
    uint32_t rank = 0;
    std::string host;
    std::array<std::optional<int64_t>, kMoments> at;

    // The time to this moment from the last known moment before it.
    std::optional<int64_t> phase(size_t moment) const {
        if (!at[moment]) return std::nullopt;
        for (size_t before = moment; before-- > 0;)
            if (at[before]) return *at[moment] - *at[before];
        return *at[moment];
    }
    // They are 0 or later, and nothing is before them.
    int64_t last() const { return std::ranges::max(at).value_or(0); }
};

std::vector<Row> rows_of(const wire::StepStatus& status) {
    std::vector<Row> rows;
    std::optional<int64_t> first;
    for (const auto& node : status.nodes())
        for (const auto& rank : node.ranks()) {
            Row row{rank.rank(), node.host(), {}};
            if (rank.has_started_ms()) row.at[0] = rank.started_ms();
            if (rank.has_hello_ms()) row.at[1] = rank.hello_ms();
            if (rank.has_id_ms()) row.at[2] = rank.id_ms();
            if (rank.has_ready_ms()) row.at[3] = rank.ready_ms();
            for (const auto& moment : row.at)
                if (moment) first = std::min(first.value_or(*moment), *moment);
            rows.push_back(std::move(row));
        }
    for (auto& row : rows)
        for (auto& moment : row.at)
            if (moment) *moment -= *first;
    std::ranges::sort(rows, {}, &Row::rank);
    return rows;
}

std::string bar(const Row& row, int64_t end) {
    std::string out(kBar, ' ');
    size_t from = 0;
    for (size_t m = 0; m < kMoments; ++m) {
        const int64_t to = end == 0 ? 0 : row.at[m].value_or(0) * static_cast<int64_t>(kBar) / end;
        for (; static_cast<int64_t>(from) < std::min<int64_t>(to, kBar); ++from)
            out[from] = kMomentNames[m].mark;
    }
    return out;
}

struct Phase {
    int64_t median = 0;
    int64_t worst = 0;
    const Row* slowest = nullptr;
};

std::optional<Phase> phase_of(const std::vector<Row>& rows, size_t moment) {
    std::vector<int64_t> times;
    Phase phase;
    for (const Row& row : rows) {
        const auto took = row.phase(moment);
        if (!took) continue;
        times.push_back(*took);
        if (!phase.slowest || *took > phase.worst) phase = {0, *took, &row};
    }
    if (times.empty()) return std::nullopt;
    std::ranges::sort(times);
    phase.median = times[times.size() / 2];
    return phase;
}

std::string summary(const std::vector<Row>& rows) {
    std::string out;
    std::string look;
    for (size_t m = 0; m < kMoments; ++m) {
        const auto phase = phase_of(rows, m);
        if (!phase) continue;
        const std::string who =
            "rank " + std::to_string(phase->slowest->rank) + " on " + phase->slowest->host;
        out += std::string(kMomentNames[m].reached) + ": median " + std::to_string(phase->median) +
               " ms, worst " + std::to_string(phase->worst) + " ms (" + who + ")\n";
        if (phase->worst > kStandsOutFactor * phase->median && phase->worst - phase->median >= kStandsOutMs)
            look += (look.empty() ? "" : ", ") + who + " (" + std::to_string(phase->worst) + " ms " +
                    kMomentNames[m].reached + ")";
    }
    return out + (look.empty() ? "no rank stands out\n" : "look at " + look + "\n");
}

}  // namespace

std::string waterfall_text(const std::string& step, const wire::StepStatus& status) {
    std::vector<Row> rows = rows_of(status);
    int64_t end = 0;
    for (const Row& row : rows) end = std::max(end, row.last());
    std::string out =
        "step " + step + ": " + plural(status.world_size(), "rank") + " on " +
        plural(static_cast<size_t>(status.nodes_size()), "node") +
        "; ms since the first task's start: . until started, - until hello, = until id, # until ready\n";
    const std::string of_all = summary(rows);
    if (rows.size() > kRanksShown) {
        std::ranges::stable_sort(rows, std::greater<>(), &Row::last);
        rows.resize(kRanksShown);
        std::ranges::sort(rows, {}, &Row::rank);
        out += "the " + std::to_string(kRanksShown) + " slowest:\n";
    }
    std::vector<std::vector<std::string>> lines = {{"RANK", "HOST"}};
    for (const auto& name : kMomentNames) lines.front().emplace_back(name.title);
    for (const Row& row : rows) {
        auto& line = lines.emplace_back(std::vector{std::to_string(row.rank), row.host});
        for (const auto& moment : row.at) line.push_back(moment ? std::to_string(*moment) : "-");
        line.push_back(bar(row, end));
    }
    return out + aligned(lines, 2, {true, false, true, true, true, true}) + of_all;
}

int show_waterfall(const std::string& step) {
    const auto answer = query_step(step);
    return answer ? print(waterfall_text(answer->step, answer->status)) : complain(answer.error().message);
}

}  // namespace dp
