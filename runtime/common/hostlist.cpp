// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/text.hpp"

namespace dp {
namespace {

tl::unexpected<Failure> malformed(std::string_view list, const char* why) {
    return fail("malformed list \"" + printable(list) + "\": " + why);
}

// A host name as prefix and trailing number.
struct Numbered {
    std::string_view prefix;
    std::string_view digits;
};

Numbered numbered(std::string_view host) {
    size_t start = host.size();
    while (start > 0 && host[start - 1] >= '0' && host[start - 1] <= '9') --start;
    // Numbers that do not fit into 64 bits stay part of the name.
    if (host.size() - start > 18) start = host.size();
    return {host.substr(0, start), host.substr(start)};
}

bool are_alike(const Numbered& a, const Numbered& b) {
    return a.prefix == b.prefix && a.digits.size() == b.digits.size() && !a.digits.empty();
}

bool follows(const Numbered& a, const Numbered& b) {
    return are_alike(a, b) && *parse_number<uint64_t>(a.digits) + 1 == *parse_number<uint64_t>(b.digits);
}

// The numbers of one bracket, "01-03,7".
Try<std::vector<Hostlist::Range>> read_bracket(std::string_view body, std::string_view list) {
    std::vector<Hostlist::Range> ranges;
    size_t numbers = 0;
    for (std::string_view part : split(body, ',')) {
        const auto range = parse_range<uint64_t>(part);
        if (!range) return malformed(list, "a bracket holds no number");
        const auto [first, last] = *range;
        if (last < first) return malformed(list, "a range runs backwards");
        if (last - first >= kMaxHosts || numbers + (last - first) >= kMaxHosts)
            return malformed(list, "it names too many hosts");
        ranges.push_back({first, last, part.substr(0, part.find('-')).size(), numbers});
        numbers = ranges.back().end();
    }
    if (ranges.empty()) return malformed(list, "a bracket is empty");
    return ranges;
}

// One comma-separated part of the list, with any number of brackets.
Try<Hostlist::Name> read_name(std::string_view name, std::string_view list) {
    Hostlist::Name pieces;
    size_t hosts = 1;
    while (!name.empty()) {
        const size_t open = name.find('[');
        const std::string_view word = name.substr(0, open);
        if (word.find(']') != std::string_view::npos)
            return malformed(list, "a bracket closes that never opened");
        pieces.push_back({word, {}});
        if (open == std::string_view::npos) break;
        const size_t close = name.find(']', open);
        if (close == std::string_view::npos) return malformed(list, "a bracket never closes");
        pieces.back().ranges = DP_TRY(read_bracket(name.substr(open + 1, close - open - 1), list));
        hosts *= pieces.back().numbers();
        if (hosts > kMaxHosts) return malformed(list, "it names too many hosts");
        name.remove_prefix(close + 1);
    }
    return pieces;
}

size_t hosts_of(const Hostlist::Name& name) {
    size_t hosts = 1;
    for (const auto& piece : name) hosts *= piece.numbers();
    return hosts;
}

// At least those of its hosts.
size_t bytes_of(const Hostlist::Name& name) {
    size_t longest = 0;
    for (const auto& piece : name) {
        size_t widest = 0;
        for (const auto& range : piece.ranges)
            widest = std::max({widest, range.digits, std::to_string(range.last).size()});
        longest += piece.word.size() + widest;
    }
    return hosts_of(name) * longest;
}

// The number of a bracket at this index.
std::string number_at(const Hostlist::Piece& piece, size_t index) {
    const auto range = std::upper_bound(piece.ranges.begin(), piece.ranges.end(), index,
                                        [](size_t i, const Hostlist::Range& r) { return i < r.end(); });
    const std::string digits = std::to_string(range->first + (index - range->before));
    return std::string(range->digits - std::min(range->digits, digits.size()), '0') + digits;
}

std::string host_of(const Hostlist::Name& name, size_t index) {
    std::string host;
    size_t left = hosts_of(name);
    for (const auto& piece : name) {
        host += piece.word;
        if (piece.ranges.empty()) break;
        left /= piece.numbers();
        host += number_at(piece, index / left);
        index %= left;
    }
    return host;
}

bool matches(std::span<const Hostlist::Piece> pieces, std::string_view host) {
    if (pieces.empty()) return host.empty();
    const auto& [word, ranges] = pieces.front();
    if (!host.starts_with(word)) return false;
    host.remove_prefix(word.size());
    if (ranges.empty()) return host.empty();
    // Digits may also follow the bracket: "n[1-2]0".
    for (size_t size = 1; size <= host.size(); ++size) {
        const auto number = parse_number<uint64_t>(host.substr(0, size));
        if (!number) return false;
        const auto is_in = [&, host = host](const Hostlist::Range& range) {
            return *number >= range.first && *number <= range.last &&
                   (size == range.digits || (size > range.digits && host.front() != '0'));
        };
        if (std::any_of(ranges.begin(), ranges.end(), is_in) && matches(pieces.subspan(1), host.substr(size)))
            return true;
    }
    return false;
}

}  // namespace

Try<Hostlist> Hostlist::read(std::string_view list) {
    Hostlist read;
    size_t bytes = 0;
    size_t start = 0;
    int depth = 0;
    for (size_t i = 0; i <= list.size(); ++i) {
        bool end = i == list.size();
        if (!end && list[i] == '[') ++depth;
        if (!end && list[i] == ']') --depth;
        if (depth < 0 || depth > 1) return malformed(list, "its brackets do not pair");
        if (!end && (list[i] != ',' || depth > 0)) continue;
        if (i == start) {
            if (list.empty()) break;
            return malformed(list, "a name is empty");
        }
        auto name = DP_TRY(read_name(list.substr(start, i - start), list));
        read.size_ += hosts_of(name);
        if (read.size_ > kMaxHosts) return malformed(list, "it names too many hosts");
        bytes += bytes_of(name);
        if (bytes > kMaxHostBytes) return malformed(list, "the names of its hosts are too long");
        read.names_.push_back(std::move(name));
        start = i + 1;
    }
    return read;
}

bool Hostlist::has(std::string_view host) const {
    return std::any_of(names_.begin(), names_.end(), [&](const Name& name) { return matches(name, host); });
}

std::optional<std::string> Hostlist::at(size_t index) const {
    for (const Name& name : names_) {
        const size_t hosts = hosts_of(name);
        if (index < hosts) return host_of(name, index);
        index -= hosts;
    }
    return std::nullopt;
}

std::vector<std::string> Hostlist::all() const {
    std::vector<std::string> hosts;
    hosts.reserve(size_);
    for (const Name& name : names_) {
        const size_t count = hosts_of(name);
        for (size_t i = 0; i < count; ++i) hosts.push_back(host_of(name, i));
    }
    return hosts;
}

std::optional<SharedHost> shared_host(std::span<const Hostlist> lists) {
    std::unordered_map<std::string, size_t> list_of;
    for (size_t list = 0; list < lists.size() && lists.size() > 1; ++list)
        for (auto& host : lists[list].all()) {
            const auto [known, is_new] = list_of.try_emplace(std::move(host), list);
            if (!is_new && known->second != list) return SharedHost{known->first, known->second, list};
        }
    return std::nullopt;
}

Try<std::vector<std::string>> expand_hostlist(std::string_view list) {
    return Hostlist::read(list).map([](const Hostlist& read) { return read.all(); });
}

std::vector<std::string> in_rank_order(std::vector<std::pair<uint32_t, std::string>> lowest_rank_and_host) {
    std::sort(lowest_rank_and_host.begin(), lowest_rank_and_host.end());
    std::vector<std::string> hosts;
    hosts.reserve(lowest_rank_and_host.size());
    for (auto& [rank, host] : lowest_rank_and_host) hosts.push_back(std::move(host));
    return hosts;
}

std::string compress_hostlist(std::span<const std::string> hosts) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < hosts.size();) {
        // All hosts from i on with the same prefix and width go into one bracket, which folds runs.
        const Numbered head = numbered(hosts[i]);
        std::vector<std::string> runs;
        size_t next = i;
        while (next < hosts.size() && are_alike(head, numbered(hosts[next]))) {
            size_t last = next;
            while (last + 1 < hosts.size() && follows(numbered(hosts[last]), numbered(hosts[last + 1])))
                ++last;
            std::string& run = runs.emplace_back(numbered(hosts[next]).digits);
            if (last > next) run.append("-").append(numbered(hosts[last]).digits);
            next = last + 1;
        }
        const bool is_one = next <= i + 1;
        parts.push_back(is_one ? hosts[i] : std::string(head.prefix) + "[" + join(runs) + "]");
        i = is_one ? i + 1 : next;
    }
    return join(parts);
}

std::string compress_ranks(std::span<const uint32_t> ranks) {
    std::string out;
    for (size_t i = 0; i < ranks.size();) {
        size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        out += (out.empty() ? "" : ",") + std::to_string(ranks[i]);
        if (last > i) out += "-" + std::to_string(ranks[last]);
        i = last + 1;
    }
    return out;
}

std::string name_ranks(std::span<const uint32_t> ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + compress_ranks(ranks);
}

}  // namespace dp
