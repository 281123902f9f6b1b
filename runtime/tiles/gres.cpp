// SPDX-License-Identifier: Apache-2.0
#include "tiles/gres.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {
namespace {

constexpr std::string_view kNoIndices = "N/A";

tl::unexpected<Failure> malformed(std::string_view part, const std::string& why) {
    return fail("Slurm describes this node's gres as \"" + printable(part) + "\", where " + why);
}

// "0,2-5" -> ascending, without repetition.
Try<std::vector<uint32_t>> parse_indices(std::string_view list, std::string_view part) {
    std::vector<uint32_t> out;
    if (list.empty() || list == kNoIndices) return out;
    for (std::string_view range : split(list, ',')) {
        const auto read = parse_range<uint32_t>(range);
        if (!read || read->second < read->first)
            return malformed(part, "\"" + printable(range, 40) + "\" is neither an index nor a range");
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
        if (!count) return malformed(part, "there is no count before the bracket");
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
        units.indices = DP_TRY(parse_indices(inside.substr(4), part));
        return units;
    }
    // For units that several jobs share (shard, mps), how much of each: "1/4,0/4".
    if (inside.find('/') != std::string_view::npos &&
        inside.find_first_not_of("0123456789/,") == std::string_view::npos)
        return parse_name(name, true, part);
    if (!inside.starts_with("CNT:")) return malformed(part, "the bracket has neither IDX: nor CNT:");
    auto units = DP_TRY(parse_name(name, false, part));
    const auto count = parse_number<uint64_t>(inside.substr(4));
    if (!count) return malformed(part, "the count is not a number");
    units.count = *count;
    return units;
}

// Of words such as "gpu", "gpu:2", "gpu:a100:2", "gpu:a100=2" those of one gres.
uint64_t sum_of_units(const std::vector<std::string_view>& words, std::string_view gres) {
    constexpr std::string_view kSeparators = ":=";
    uint64_t units = 0;
    for (std::string_view word : words)
        if (word.substr(0, word.find_first_of(kSeparators)) == gres)
            units += parse_number<uint64_t>(word.substr(word.find_last_of(kSeparators) + 1)).value_or(1);
    return units;
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
    std::vector<std::string> parts;
    for (const GresUnits& units : given) {
        std::string& text = parts.emplace_back(units.name);
        if (!units.type.empty()) text += ":" + units.type;
        const std::string count = std::to_string(units.count);
        if (!units.indices)
            text += "(CNT:" + count + ")";
        else
            text += ":" + count + "(IDX:" +
                    (units.indices->empty() ? std::string(kNoIndices) : compress_ranks(*units.indices)) + ")";
    }
    return join(parts);
}

std::string write_job_gres(const std::vector<std::pair<std::string, std::string>>& nodes) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < nodes.size();) {
        std::vector<std::string> same;
        const std::string& detail = nodes[i].second;
        for (; i < nodes.size() && nodes[i].second == detail; ++i) same.push_back(nodes[i].first);
        if (!detail.empty()) parts.push_back(compress_hostlist(same) + "=" + detail);
    }
    return join(parts, ";");
}

Try<std::string> gres_of_node(std::string_view job_gres, std::string_view node) {
    for (std::string_view part : split(job_gres, ';')) {
        const size_t equals = part.find('=');
        const auto nodes = Hostlist::read(part.substr(0, equals));
        if (!nodes || equals == std::string_view::npos)
            return fail("srun's plugin describes the job's gres as \"" + printable(part) +
                        "\", which is not NODES=GRES");
        if (nodes->has(node)) return std::string(part.substr(equals + 1));
    }
    return std::string();
}

uint64_t units_of_step(std::string_view step_gres, std::string_view gres, uint64_t tasks) {
    const auto units = [&](std::string_view request) {
        std::vector<std::string_view> words;
        for (std::string_view word : split(request, ','))
            if (word.starts_with("gres:") || word.starts_with("gres/")) words.push_back(word.substr(5));
        return sum_of_units(words, gres);
    };
    const size_t bar = std::min(step_gres.find('|'), step_gres.size());
    return units(step_gres.substr(0, bar)) +
           units(step_gres.substr(std::min(bar + 1, step_gres.size()))) * tasks;
}

uint64_t configured_units(std::string_view node_gres, std::string_view gres) {
    std::string text;
    int depth = 0;
    for (char c : node_gres) {
        depth += c == '(' ? 1 : 0;
        if (depth == 0) text += c;
        depth -= c == ')' ? 1 : 0;
    }
    return sum_of_units(split(text, ','), gres);
}

}  // namespace dp
