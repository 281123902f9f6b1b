// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.hpp"

#include "common/text.hpp"

namespace dp {
namespace {

std::string padded(uint64_t number, size_t width) {
    std::string digits = std::to_string(number);
    return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

Failure malformed(std::string_view list, const char* why) {
    return {"malformed list \"" + printable(list) + "\": " + why};
}

// The numbers of one bracket, "01-03,7", as text with their leading zeros.
Try<std::vector<std::string>> expand_bracket(std::string_view body, std::string_view list) {
    std::vector<std::string> out;
    for (std::string_view part : split(body, ',')) {
        size_t dash = part.find('-');
        std::string_view first_text = part.substr(0, dash);
        std::string_view last_text = dash == std::string_view::npos ? first_text : part.substr(dash + 1);
        auto first = parse_number<uint64_t>(first_text);
        auto last = parse_number<uint64_t>(last_text);
        if (!first || !last) return tl::make_unexpected(malformed(list, "a bracket holds no number"));
        if (*last < *first) return tl::make_unexpected(malformed(list, "a range runs backwards"));
        if (*last - *first >= kMaxHosts || out.size() + (*last - *first) >= kMaxHosts)
            return tl::make_unexpected(malformed(list, "it names too many hosts"));
        for (uint64_t n = *first; n <= *last; ++n) out.push_back(padded(n, first_text.size()));
    }
    if (out.empty()) return tl::make_unexpected(malformed(list, "a bracket is empty"));
    return out;
}

// One comma-separated part of the list, with any number of brackets.
Try<std::vector<std::string>> expand_name(std::string_view name, std::string_view list) {
    std::vector<std::string> out{""};
    while (!name.empty()) {
        size_t open = name.find('[');
        std::string_view literal = name.substr(0, open);
        if (literal.find(']') != std::string_view::npos)
            return tl::make_unexpected(malformed(list, "a bracket closes that never opened"));
        for (auto& host : out) host += literal;
        if (open == std::string_view::npos) return out;
        size_t close = name.find(']', open);
        if (close == std::string_view::npos)
            return tl::make_unexpected(malformed(list, "a bracket never closes"));
        auto numbers = expand_bracket(name.substr(open + 1, close - open - 1), list);
        if (!numbers) return tl::make_unexpected(numbers.error());
        if (out.size() * numbers->size() > kMaxHosts)
            return tl::make_unexpected(malformed(list, "it names too many hosts"));
        std::vector<std::string> product;
        product.reserve(out.size() * numbers->size());
        for (const auto& host : out)
            for (const auto& number : *numbers) product.push_back(host + number);
        out = std::move(product);
        name.remove_prefix(close + 1);
    }
    return out;
}

// A host name as prefix and trailing number.
struct Numbered {
    std::string_view prefix;
    std::string_view digits;
};

Numbered numbered(std::string_view host) {
    size_t start = host.size();
    while (start > 0 && host[start - 1] >= '0' && host[start - 1] <= '9') --start;
    // Numbers that do not fit 64 bits stay part of the name.
    if (host.size() - start > 18) start = host.size();
    return {host.substr(0, start), host.substr(start)};
}

bool follows(const Numbered& a, const Numbered& b) {
    return a.prefix == b.prefix && a.digits.size() == b.digits.size() && !a.digits.empty() &&
           *parse_number<uint64_t>(a.digits) + 1 == *parse_number<uint64_t>(b.digits);
}

}  // namespace

Try<std::vector<std::string>> expand_hostlist(std::string_view list) {
    std::vector<std::string> out;
    size_t start = 0;
    int depth = 0;
    for (size_t i = 0; i <= list.size(); ++i) {
        bool end = i == list.size();
        if (!end && list[i] == '[') ++depth;
        if (!end && list[i] == ']') --depth;
        if (depth < 0 || depth > 1) return tl::make_unexpected(malformed(list, "its brackets do not pair"));
        if (!end && (list[i] != ',' || depth > 0)) continue;
        if (i == start) {
            if (list.empty()) break;
            return tl::make_unexpected(malformed(list, "a name is empty"));
        }
        auto hosts = expand_name(list.substr(start, i - start), list);
        if (!hosts) return hosts;
        if (out.size() + hosts->size() > kMaxHosts)
            return tl::make_unexpected(malformed(list, "it names too many hosts"));
        out.insert(out.end(), hosts->begin(), hosts->end());
        start = i + 1;
    }
    return out;
}

std::string compress_hostlist(std::span<const std::string> hosts) {
    std::string out;
    for (size_t i = 0; i < hosts.size();) {
        // All hosts from i that share prefix and width belong in one bracket, runs folded inside it.
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
