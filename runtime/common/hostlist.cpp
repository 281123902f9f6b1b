// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.hpp"

#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "common/ranges.hpp"

namespace dp {
namespace {

std::string padded(uint64_t number, size_t width) {
    std::string digits = std::to_string(number);
    return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

Failure malformed(std::string_view list, const char* why) {
    return {"malformed list \"" + printable(list) + "\": " + why};
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

bool follows(const Numbered& a, const Numbered& b) {
    return a.prefix == b.prefix && a.digits.size() == b.digits.size() && !a.digits.empty() &&
           *parse_number<uint64_t>(a.digits) + 1 == *parse_number<uint64_t>(b.digits);
}

}  // namespace

size_t Hostlist::Range::width() const {
    return std::max(digits, std::to_string(last).size());
}

std::string Hostlist::Piece::number(size_t index) const {
    const auto range = std::upper_bound(ranges.begin(), ranges.end(), index,
                                        [](size_t i, const Range& candidate) { return i < candidate.end(); });
    return padded(range->first + (index - range->before), range->digits);
}

// The numbers of one bracket, "01-03,7".
Try<std::vector<Hostlist::Range>> Hostlist::read_bracket(std::string_view body, std::string_view list) {
    std::vector<Range> ranges;
    size_t numbers = 0;
    for (std::string_view part : split(body, ',')) {
        const auto range = parse_range<uint64_t>(part);
        if (!range) return tl::unexpected(malformed(list, "a bracket holds no number"));
        const auto [first, last] = *range;
        if (last < first) return tl::unexpected(malformed(list, "a range runs backwards"));
        if (last - first >= kMaxHosts || numbers + (last - first) >= kMaxHosts)
            return tl::unexpected(malformed(list, "it names too many hosts"));
        ranges.push_back({first, last, part.substr(0, part.find('-')).size(), numbers});
        numbers = ranges.back().end();
    }
    if (ranges.empty()) return tl::unexpected(malformed(list, "a bracket is empty"));
    return ranges;
}

// One comma-separated part of the list, with any number of brackets.
Try<Hostlist::Name> Hostlist::read_name(std::string_view name, std::string_view list) {
    Name pieces;
    size_t hosts = 1;
    while (!name.empty()) {
        const size_t open = name.find('[');
        const std::string_view word = name.substr(0, open);
        if (word.find(']') != std::string_view::npos)
            return tl::unexpected(malformed(list, "a bracket closes that never opened"));
        pieces.push_back({word, {}});
        if (open == std::string_view::npos) break;
        const size_t close = name.find(']', open);
        if (close == std::string_view::npos)
            return tl::unexpected(malformed(list, "a bracket never closes"));
        auto ranges = DP_TRY(read_bracket(name.substr(open + 1, close - open - 1), list));
        pieces.back().ranges = std::move(ranges);
        hosts *= pieces.back().numbers();
        if (hosts > kMaxHosts) return tl::unexpected(malformed(list, "it names too many hosts"));
        name.remove_prefix(close + 1);
    }
    return pieces;
}

size_t Hostlist::hosts_of(const Name& name) {
    size_t hosts = 1;
    for (const Piece& piece : name)
        if (!piece.ranges.empty()) hosts *= piece.numbers();
    return hosts;
}

size_t Hostlist::bytes_of(const Name& name) {
    size_t longest = 0;
    for (const Piece& piece : name) {
        size_t widest = 0;
        for (const Range& range : piece.ranges) widest = std::max(widest, range.width());
        longest += piece.word.size() + widest;
    }
    return hosts_of(name) * longest;
}

std::string Hostlist::host_of(const Name& name, size_t index) {
    std::string host;
    size_t left = hosts_of(name);
    for (const Piece& piece : name) {
        host += piece.word;
        if (piece.ranges.empty()) break;
        left /= piece.numbers();
        host += piece.number(index / left);
        index %= left;
    }
    return host;
}

Try<Hostlist> Hostlist::read(std::string_view list) {
    Hostlist read;
    size_t bytes = 0;
    size_t start = 0;
    int depth = 0;
    for (size_t i = 0; i <= list.size(); ++i) {
        bool end = i == list.size();
        if (!end && list[i] == '[') ++depth;
        if (!end && list[i] == ']') --depth;
        if (depth < 0 || depth > 1) return tl::unexpected(malformed(list, "its brackets do not pair"));
        if (!end && (list[i] != ',' || depth > 0)) continue;
        if (i == start) {
            if (list.empty()) break;
            return tl::unexpected(malformed(list, "a name is empty"));
        }
        auto name = DP_TRY(read_name(list.substr(start, i - start), list));
        read.size_ += hosts_of(name);
        if (read.size_ > kMaxHosts) return tl::unexpected(malformed(list, "it names too many hosts"));
        bytes += bytes_of(name);
        if (bytes > kMaxHostBytes)
            return tl::unexpected(malformed(list, "the names of its hosts are too long"));
        read.names_.push_back(std::move(name));
        start = i + 1;
    }
    return read;
}

bool Hostlist::matches(std::span<const Piece> pieces, std::string_view host) {
    if (pieces.empty()) return host.empty();
    const Piece& piece = pieces.front();
    if (!host.starts_with(piece.word)) return false;
    host.remove_prefix(piece.word.size());
    if (piece.ranges.empty()) return host.empty();
    // Digits may also follow the bracket: "n[1-2]0".
    for (size_t size = 1; size <= host.size(); ++size) {
        const auto number = parse_number<uint64_t>(host.substr(0, size));
        if (!number) return false;
        const bool is_there = std::any_of(piece.ranges.begin(), piece.ranges.end(), [&](const Range& range) {
            return *number >= range.first && *number <= range.last &&
                   (size == range.digits || (size > range.digits && host.front() != '0'));
        });
        if (is_there && matches(pieces.subspan(1), host.substr(size))) return true;
    }
    return false;
}

bool Hostlist::has(std::string_view host) const {
    return std::any_of(names_.begin(), names_.end(), [&](const Name& name) { return matches(name, host); });
}

std::optional<std::string> Hostlist::common_number(const Piece& a, const Piece& b) {
    constexpr size_t kMostDigits = std::numeric_limits<uint64_t>::digits10 + 1;
    for (const Range& one : a.ranges)
        for (const Range& two : b.ranges) {
            uint64_t first = std::max(one.first, two.first);
            const uint64_t last = std::min(one.last, two.last);
            const size_t digits = std::max(one.digits, two.digits);
            if (one.digits != two.digits) {
                // "8" is not "08", but from "10" on both look the same.
                if (digits > kMostDigits) continue;
                uint64_t smallest = 1;
                for (size_t i = 1; i < digits; ++i) smallest *= 10;
                first = std::max(first, smallest);
            }
            if (first <= last) return padded(first, digits);
        }
    return std::nullopt;
}

bool Hostlist::is_plain(const Name& name) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const std::string_view word = name.front().word;
    if (name.front().ranges.empty()) return true;
    if (std::any_of(word.begin(), word.end(), is_digit)) return false;
    return name.size() == 1 ||
           (name.size() == 2 && name[1].ranges.empty() && !is_digit(name[1].word.front()));
}

std::optional<std::string> Hostlist::common_host(const Name& a, const Name& b) {
    const Piece& one = a.front();
    const Piece& two = b.front();
    if (one.ranges.empty()) return matches(b, one.word) ? std::optional(std::string(one.word)) : std::nullopt;
    if (two.ranges.empty()) return matches(a, two.word) ? std::optional(std::string(two.word)) : std::nullopt;
    // In both, the number is the first one in the hosts' names.
    const auto behind = [](const Name& name) { return name.size() == 2 ? name[1].word : std::string_view(); };
    if (one.word != two.word || behind(a) != behind(b)) return std::nullopt;
    const auto number = common_number(one, two);
    if (!number) return std::nullopt;
    return std::string(one.word).append(*number).append(behind(a));
}

std::optional<Hostlist::Shared> Hostlist::shared_host(std::span<const Hostlist> lists) {
    // This many pairs of ranges can be compared in the time that it takes to make and sort a host.
    constexpr size_t kPairsAHost = 16;
    size_t ranges = 0;
    size_t hosts = 0;
    bool are_plain = true;
    for (const Hostlist& list : lists) {
        for (const Name& name : list.names_) {
            ranges += std::max<size_t>(name.front().ranges.size(), 1);
            are_plain &= is_plain(name);
        }
        hosts += list.size_;
    }
    if (lists.size() < 2) return std::nullopt;
    if (are_plain && ranges * ranges <= kPairsAHost * hosts) {
        for (size_t second = 1; second < lists.size(); ++second)
            for (size_t first = 0; first < second; ++first)
                for (const Name& a : lists[first].names_)
                    for (const Name& b : lists[second].names_)
                        if (auto host = common_host(a, b)) return Shared{std::move(*host), first, second};
        return std::nullopt;
    }
    std::vector<std::pair<std::string, size_t>> all;
    all.reserve(hosts);
    for (size_t list = 0; list < lists.size(); ++list)
        for (auto& host : lists[list].all()) all.emplace_back(std::move(host), list);
    std::sort(all.begin(), all.end());
    for (size_t i = 1; i < all.size(); ++i)
        if (all[i].first == all[i - 1].first && all[i].second != all[i - 1].second)
            return Shared{std::move(all[i].first), all[i - 1].second, all[i].second};
    return std::nullopt;
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

Try<std::vector<std::string>> expand_hostlist(std::string_view list) {
    return Hostlist::read(list).map([](const Hostlist& read) { return read.all(); });
}

std::vector<std::string> in_rank_order(std::vector<std::pair<uint32_t, std::string>> lowest_rank_and_host) {
    std::sort(lowest_rank_and_host.begin(), lowest_rank_and_host.end());
    std::vector<std::string> hosts;
    for (auto& [rank, host] : lowest_rank_and_host) hosts.push_back(std::move(host));
    return hosts;
}

std::string compress_hostlist(std::span<const std::string> hosts) {
    std::string out;
    for (size_t i = 0; i < hosts.size();) {
        // All hosts from i on with the same prefix and width go into one bracket, which folds runs.
        Numbered head = numbered(hosts[i]);
        std::string body;
        size_t next = i;
        while (next < hosts.size()) {
            Numbered first = numbered(hosts[next]);
            if (first.prefix != head.prefix || first.digits.size() != head.digits.size() ||
                first.digits.empty())
                break;
            size_t last = next;
            while (last + 1 < hosts.size() && follows(numbered(hosts[last]), numbered(hosts[last + 1])))
                ++last;
            if (!body.empty()) body += ',';
            body += first.digits;
            if (last > next) body += "-" + std::string(numbered(hosts[last]).digits);
            next = last + 1;
        }
        if (!out.empty()) out += ',';
        if (next <= i + 1) {
            out += hosts[i];
            next = i + 1;
        } else {
            out += std::string(head.prefix) + "[" + body + "]";
        }
        i = next;
    }
    return out;
}

std::string compress_ranks(std::span<const uint32_t> ranks) {
    std::string out;
    for (size_t i = 0; i < ranks.size();) {
        size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (!out.empty()) out += ',';
        out += std::to_string(ranks[i]);
        if (last > i) out += "-" + std::to_string(ranks[last]);
        i = last + 1;
    }
    return out;
}

std::string name_ranks(std::span<const uint32_t> ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + compress_ranks(ranks);
}

}  // namespace dp
