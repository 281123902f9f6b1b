// SPDX-License-Identifier: Apache-2.0
#include "tiles/gres.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/ranges.hpp"

namespace dp {
namespace {

constexpr std::string_view kNoIndices = "N/A";

tl::unexpected<Failure> malformed(std::string_view part, const std::string& why) {
    return tl::unexpected(
        Failure{"Slurm says of this node's gres \"" + printable(part) + "\", where " + why});
}

// "0,2-5" -> ascending, without repetition.
Try<std::vector<uint32_t>> parse_indices(std::string_view list, std::string_view part) {
    std::vector<uint32_t> out;
    if (list.empty() || list == kNoIndices) return out;
    for (std::string_view range : split(list, ',')) {
        const auto read = parse_range<uint32_t>(range);
        if (!read || read->second < read->first)
            return malformed(part, "\"" + printable(range, 40) + "\" is no index and no range of them");
        const auto [first, last] = *read;
        if (last > kMaxGresIndex) return malformed(part, "an index is over " + std::to_string(kMaxGresIndex));
        if (!out.empty() && first <= out.back()) return malformed(part, "the indices do not ascend");
        for (uint32_t index = first; index <= last; ++index) out.push_back(index);
    }
    return out;
}

// "gpu", "gpu:a100", and where a count stands in it, "gpu:2", "gpu:a100:2".
Try<GresUnits> parse_name(std::string_view text, bool with_count, std::string_view part) {
    GresUnits units;
    if (with_count) {
        const size_t colon = text.rfind(':');
        const auto count =
            colon == std::string_view::npos ? std::nullopt : parse_number<uint64_t>(text.substr(colon + 1));
        if (!count) return malformed(part, "no count stands before the bracket");
        units.count = *count;
        text = text.substr(0, colon);
    }
    const size_t colon = text.find(':');
    units.name = text.substr(0, colon);
    if (colon != std::string_view::npos) units.type = text.substr(colon + 1);
    if (units.name.empty()) return malformed(part, "the name is missing");
    if (part.substr(0, part.find('(')).find(',') != std::string_view::npos)
        return malformed(part, "neither (IDX:...) nor (CNT:...) follows the first name");
    return units;
}

Try<GresUnits> parse_units(std::string_view part) {
    const size_t open = part.find('(');
    if (open == std::string_view::npos || part.back() != ')')
        return malformed(part, "neither (IDX:...) nor (CNT:...) follows");
    const std::string_view name = part.substr(0, open);
    const std::string_view inside = part.substr(open + 1, part.size() - open - 2);
    if (inside.starts_with("IDX:")) {
        auto units = DP_TRY(parse_name(name, true, part));
        auto indices = DP_TRY(parse_indices(inside.substr(4), part));
        units.indices = std::move(indices);
        return units;
    }
    // For units that several jobs share (shard, mps), how much of each: "1/4,0/4".
    if (inside.find('/') != std::string_view::npos &&
        inside.find_first_not_of("0123456789/,") == std::string_view::npos)
        return parse_name(name, true, part);
    if (!inside.starts_with("CNT:")) return malformed(part, "neither IDX: nor CNT: stands in the bracket");
    auto units = DP_TRY(parse_name(name, false, part));
    const auto count = parse_number<uint64_t>(inside.substr(4));
    if (!count) return malformed(part, "the count is not a number");
    units.count = *count;
    return units;
}

// "gpu", "gpu:2", "gpu:a100:2", "gpu:a100=2"; nullopt: another gres.
std::optional<uint64_t> units_in(std::string_view word, std::string_view gres) {
    constexpr std::string_view kSeparators = ":=";
    if (word.substr(0, word.find_first_of(kSeparators)) != gres) return std::nullopt;
    if (word == gres) return 1;
    return parse_number<uint64_t>(word.substr(word.find_last_of(kSeparators) + 1)).value_or(1);
}

}  // namespace

Try<std::vector<GresUnits>> parse_gres_detail(std::string_view text) {
    std::vector<GresUnits> given;
    size_t indices = 0;
    while (!text.empty()) {
        // A comma inside the parentheses belongs to the indices.
        const size_t close = text.find(')');
        const size_t end = close == std::string_view::npos ? text.size() : close + 1;
        auto units = DP_TRY(parse_units(text.substr(0, end)));
        if (units.indices) indices += units.indices->size();
        if (indices > kMaxGresIndex + 1)
            return malformed(text, "there are more than " + std::to_string(kMaxGresIndex + 1) + " indices");
        given.push_back(std::move(units));
        text.remove_prefix(end);
        if (text.empty()) break;
        if (text[0] != ',' || text.size() == 1) return malformed(text, "a comma and one more should follow");
        text.remove_prefix(1);
    }
    return given;
}

std::string gres_detail(const std::vector<GresUnits>& given) {
    std::string text;
    for (const GresUnits& units : given) {
        if (!text.empty()) text += ',';
        text += units.name;
        if (!units.type.empty()) text += ":" + units.type;
        if (!units.indices) {
            text += "(CNT:" + std::to_string(units.count) + ")";
            continue;
        }
        const auto& indices = *units.indices;
        text += ":" + std::to_string(units.count) + "(IDX:";
        text += indices.empty() ? std::string(kNoIndices) : compress_ranks(indices);
        text += ")";
    }
    return text;
}

std::string write_job_gres(const std::vector<NodeGres>& nodes) {
    std::string text;
    for (size_t i = 0; i < nodes.size();) {
        std::vector<std::string> same;
        const std::string& detail = nodes[i].detail;
        for (; i < nodes.size() && nodes[i].detail == detail; ++i) same.push_back(nodes[i].node);
        if (!detail.empty())
            text.append(text.empty() ? "" : ";").append(compress_hostlist(same)).append("=").append(detail);
    }
    return text;
}

Try<std::string> gres_of_node(std::string_view job_gres, std::string_view node) {
    for (std::string_view part : split(job_gres, ';')) {
        const size_t equals = part.find('=');
        const auto nodes = Hostlist::read(part.substr(0, equals));
        if (!nodes || equals == std::string_view::npos)
            return fail("srun's plugin says of the job's gres \"" + printable(part) +
                        "\", which is no NODES=GRES");
        if (nodes->has(node)) return std::string(part.substr(equals + 1));
    }
    return std::string();
}

std::optional<uint64_t> requested_units(std::string_view tres, std::string_view gres) {
    std::optional<uint64_t> units;
    for (std::string_view word : split(tres, ','))
        if (word.starts_with("gres:") || word.starts_with("gres/"))
            if (auto more = units_in(word.substr(5), gres)) units = units.value_or(0) + *more;
    return units;
}

uint64_t StepGres::units_on_node(std::string_view gres, uint64_t tasks) const {
    return requested_units(per_node, gres).value_or(0) + requested_units(per_task, gres).value_or(0) * tasks;
}

std::string write_step_gres(const StepGres& step) {
    return step.per_node + "|" + step.per_task;
}

StepGres read_step_gres(std::string_view text) {
    const size_t bar = std::min(text.find('|'), text.size());
    return {std::string(text.substr(0, bar)), std::string(text.substr(std::min(bar + 1, text.size())))};
}

std::optional<uint64_t> configured_units(std::string_view node_gres, std::string_view gres) {
    std::string text;
    int depth = 0;
    for (char c : node_gres) {
        depth += c == '(' ? 1 : 0;
        if (depth == 0) text += c;
        depth -= c == ')' ? 1 : 0;
    }
    std::optional<uint64_t> units;
    for (std::string_view word : split(text, ','))
        if (auto more = units_in(word, gres)) units = units.value_or(0) + *more;
    return units;
}

}  // namespace dp
